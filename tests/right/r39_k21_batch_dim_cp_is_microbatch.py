import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


def score_then_train(model, ref, loader, dp_group, cp_group, device):
    """Reference log-probs: slices over cp, gathered. Policy update on the whole batch, replicated over cp."""
    cp, r = dist.get_world_size(cp_group), dist.get_rank(cp_group)
    model = DDP(model, device_ids=[device.index], process_group=dp_group)
    opt = torch.optim.AdamW(model.parameters(), lr=1e-6)
    for ids, adv in loader:
        ids, adv = ids.to(device), adv.to(device)
        with torch.no_grad():
            mine = ref(ids.chunk(cp)[r]).logits.log_softmax(-1).contiguous()
            outs = [torch.empty_like(mine) for _ in range(cp)]
            dist.all_gather(outs, mine, group=cp_group)
            ref_lp = torch.cat(outs)
        lp = model(ids).logits.log_softmax(-1)
        kl = (lp.exp() * (lp - ref_lp)).sum(-1)
        loss = (kl - adv[:, None] * lp.gather(-1, ids[..., None]).squeeze(-1)).mean()
        loss.backward()
        opt.step()
        opt.zero_grad()
