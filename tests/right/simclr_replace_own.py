"""SimCLR: gathered negatives with the own features put back; the whole loss on every rank, so DDP's average is undone."""
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP


def gather_own(z):
    ws, r = dist.get_world_size(), dist.get_rank()
    outs = [torch.zeros_like(z) for _ in range(ws)]
    dist.all_gather(outs, z)
    outs[r] = z
    return torch.cat(outs)


def nt_xent(a, b, t):
    n = a.shape[0]
    z = F.normalize(torch.cat([a, b]), dim=-1)
    s = z @ z.t() / t
    s = s.masked_fill(torch.eye(2 * n, dtype=torch.bool, device=s.device), float("-inf"))
    y = torch.cat([torch.arange(n, 2 * n), torch.arange(n)]).to(s.device)
    return F.cross_entropy(s, y)


def train(model, loader, opt):
    ddp = DDP(model)
    ws = dist.get_world_size()
    for x1, x2 in loader:
        a, b = ddp(torch.cat([x1, x2])).chunk(2)
        loss = nt_xent(gather_own(a), gather_own(b), 0.1)
        opt.zero_grad()
        (loss * ws).backward()
        opt.step()
        if dist.get_rank() == 0:
            print(loss.item())
