"""DDP with unequal batches: each loss is weighted by its share."""
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP


def share(n, device):
    t = torch.tensor(float(n), device=device)
    dist.all_reduce(t)
    return n * dist.get_world_size() / t


def train(model, loader, opt, device):
    ddp = DDP(model)
    for x, y in loader:
        opt.zero_grad()
        loss = F.cross_entropy(ddp(x.to(device)), y.to(device))
        w = share(len(x), device)
        (loss * w).backward()
        opt.step()
        tot = loss.detach() * w
        dist.all_reduce(tot, op=dist.ReduceOp.AVG)
        if dist.get_rank() == 0:
            print(tot.item())


def detection_loss(model, ddp, images, targets, crit, opt):
    """DETR: the number of boxes is averaged over ranks, DDP averages the rest."""
    out = ddp(images)
    n = sum(len(t["labels"]) for t in targets)
    n = torch.as_tensor([n], dtype=torch.float, device=out["logits"].device)
    dist.all_reduce(n)
    n = torch.clamp(n / dist.get_world_size(), min=1).item()
    loss = crit(out, targets, reduction="sum") / n
    opt.zero_grad()
    loss.backward()
    opt.step()
