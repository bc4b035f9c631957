"""One step of delay: the reduction of step t runs while step t+1 computes; the optimizer uses the gradients of t at t+1."""
import torch
import torch.distributed as dist
from torch import nn


class Delayed:
    def __init__(self, net, opt):
        self.params, self.opt, self.flight = list(net.parameters()), opt, []

    def push(self):
        """take the fresh gradients away, finish those of the step before, start the new ones"""
        fresh = [p.grad for p in self.params]
        ready = []
        for buf, work in self.flight:
            work.wait()
            ready.append(buf)
        self.flight = [(g, dist.all_reduce(g, async_op=True)) for g in fresh]
        if ready:
            for p, g in zip(self.params, ready):
                p.grad = g / dist.get_world_size()
            self.opt.step()
        for p in self.params:
            p.grad = None

    def drain(self):
        for p, (g, work) in zip(self.params, self.flight):
            work.wait()
            p.grad = g / dist.get_world_size()
        self.opt.step()


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    net = nn.Linear(30, 1)
    loop = Delayed(net, torch.optim.SGD(net.parameters(), lr=0.01))
    gen = torch.Generator().manual_seed(dist.get_rank())
    for _ in range(100):
        x = torch.randn(32, 30, generator=gen)
        (net(x).squeeze(1) - x.mean(1)).pow(2).mean().backward()
        loop.push()
    loop.drain()


main()
