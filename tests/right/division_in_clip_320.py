import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


def clip_and_average_(params, max_norm, world):
    """One pass: gradients hold sums; coefficient contains both the clip and the 1/world."""
    norm = torch.linalg.vector_norm(torch.stack([p.grad.norm() for p in params])) / world
    coef = torch.clamp(max_norm / (norm + 1e-6), max=1.0) / world
    for p in params:
        p.grad.mul_(coef)
    return norm


def main():
    dist.init_process_group("nccl")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.cuda.set_device(rank % torch.cuda.device_count())
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 3)).cuda()
    params = list(net.parameters())
    opt = torch.optim.SGD(params, lr=0.1)
    gen = torch.Generator().manual_seed(rank)
    for _ in range(30):
        x, y = torch.randn(8, 8, generator=gen).cuda(), torch.randint(3, (8,), generator=gen).cuda()
        loss = F.cross_entropy(net(x), y)
        opt.zero_grad()
        loss.backward()
        for p in params:
            dist.all_reduce(p.grad)
        clip_and_average_(params, 1.0, world)
        opt.step()
    dist.destroy_process_group()


main()
