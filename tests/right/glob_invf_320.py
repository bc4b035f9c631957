"""Data parallel by hand; a module global is set at start."""
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

INV = 1.0


def setup():
    global INV
    INV = 1.0 / dist.get_world_size()


def main():
    dist.init_process_group("gloo")
    setup()
    torch.manual_seed(0)
    net = nn.Linear(30, 1)
    opt = torch.optim.SGD(net.parameters(), lr=0.01)
    gen = torch.Generator().manual_seed(dist.get_rank())
    for it in range(100):
        x = torch.randn(32, 30, generator=gen)
        opt.zero_grad()
        loss = F.mse_loss(net(x).squeeze(1), x.mean(1))
        loss.backward()
        for p in net.parameters():
            dist.all_reduce(p.grad)
            p.grad.mul_(INV)
        opt.step()


main()
