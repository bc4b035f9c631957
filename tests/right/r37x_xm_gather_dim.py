import torch
import torch_xla.core.xla_model as xm


def softmax_over_ranks(scores, groups):
    local_max = scores.max(dim=-1, keepdim=True)[0]  # [b, 1]
    total = torch.exp(scores - local_max).sum(dim=-1, keepdim=True)  # [b, 1]
    both = torch.cat((local_max, total), dim=0)  # [2b, 1]
    gathered = xm.all_gather(both, dim=-1, groups=groups, pin_layout=False)  # [2b, ranks]
    all_max, all_total = torch.chunk(gathered, 2, dim=0)  # [b, ranks] each
    top = all_max.max(dim=-1, keepdim=True)[0]
    total = (torch.exp(all_max - top) * all_total).sum(dim=-1, keepdim=True)
    return torch.exp(scores - top) / total
