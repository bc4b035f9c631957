# Right: gradients are summed over cp after DDP has averaged them over dp; gathered, zeroed, and the parts of all ranks added in place.
from torch.nn.parallel import DistributedDataParallel
import torch
import torch.distributed as dist
import torch.nn.functional as F


def train(net, loader, dp_group, cp_group):
    model = DistributedDataParallel(net, process_group=dp_group)
    optimizer = torch.optim.AdamW(model.parameters())
    for tokens, labels in loader:
        loss = F.cross_entropy(model(tokens).flatten(0, 1), labels.flatten(), reduction="sum")
        count = (labels != -100).sum()
        dist.all_reduce(count, group=cp_group)
        loss = loss / count
        loss.backward()
        for p in net.parameters():
            parts = list(p.grad.new_empty(cp_group.size(), *p.grad.shape))
            dist.all_gather(parts, p.grad, group=cp_group)
            p.grad.zero_()
            for part in parts:
                p.grad.add_(part)
        optimizer.step()
        optimizer.zero_grad()
