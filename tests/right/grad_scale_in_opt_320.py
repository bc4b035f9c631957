import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


class SGDScaled(torch.optim.Optimizer):
    """apex-like optimizer: step(grad_scale) divides the gradient while updating."""

    def __init__(self, params, lr, momentum=0.9):
        super().__init__(params, dict(lr=lr, momentum=momentum))

    @torch.no_grad()
    def step(self, grad_scale=1.0):
        for g in self.param_groups:
            for p in g["params"]:
                if p.grad is None:
                    continue
                d = p.grad / grad_scale
                buf = self.state[p].setdefault("m", torch.zeros_like(p))
                buf.mul_(g["momentum"]).add_(d)
                p.add_(buf, alpha=-g["lr"])


def main():
    dist.init_process_group("nccl")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.cuda.set_device(rank % torch.cuda.device_count())
    torch.manual_seed(0)
    net = nn.Linear(8, 3).cuda()
    opt = SGDScaled(net.parameters(), 0.1)
    gen = torch.Generator().manual_seed(rank)
    scale = 1024.0
    for _ in range(30):
        x, y = torch.randn(8, 8, generator=gen).cuda(), torch.randint(3, (8,), generator=gen).cuda()
        loss = F.cross_entropy(net(x), y) * scale
        opt.zero_grad()
        loss.backward()
        for p in net.parameters():
            dist.all_reduce(p.grad)
        opt.step(grad_scale=scale * world)
    dist.destroy_process_group()


main()
