"""Data parallel by hand with out= arguments."""
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn


def main():
    dist.init_process_group("gloo")
    world = dist.get_world_size()
    torch.manual_seed(0)
    net = nn.Linear(30, 1)
    opt = torch.optim.SGD(net.parameters(), lr=0.01)
    gen = torch.Generator().manual_seed(dist.get_rank())
    for it in range(100):
        x = torch.randn(32, 30, generator=gen)
        opt.zero_grad()
        F.mse_loss(net(x).squeeze(1), x.mean(1)).backward()
        gs = [p.grad for p in net.parameters()]
        flat = torch._utils._flatten_dense_tensors(gs) / world
        dist.all_reduce(flat)
        for g, s in zip(gs, torch._utils._unflatten_dense_tensors(flat, gs)):
            g.copy_(s)
        opt.step()


main()
