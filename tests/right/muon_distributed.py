"""Muon whose ranks each orthogonalise a share of the updates and exchange them (as in modded-nanogpt)."""
import os

import torch
import torch.distributed as dist


def newton_schulz(g, steps=5, eps=1e-7):
    a, b, c = 3.4445, -4.7750, 2.0315
    x = g.bfloat16() / (g.norm() + eps)
    tall = g.size(0) > g.size(1)
    if tall:
        x = x.T
    for _ in range(steps):
        s = x @ x.T
        x = a * x + (b * s + c * s @ s) @ x
    return x.T if tall else x


class Muon(torch.optim.Optimizer):
    def __init__(self, params, lr=0.02, momentum=0.95):
        self.rank, self.world = dist.get_rank(), dist.get_world_size()
        super().__init__(list(params), dict(lr=lr, momentum=momentum))

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            params = group["params"]
            total = sum(p.numel() for p in params)
            flat = torch.zeros(total, device="cuda", dtype=torch.bfloat16)
            at = 0
            for i, p in enumerate(params):
                if i % self.world == self.rank:
                    state = self.state[p]
                    if "m" not in state:
                        state["m"] = torch.zeros_like(p.grad)
                    m = state["m"].mul_(group["momentum"]).add_(p.grad)
                    u = newton_schulz(p.grad.add(m, alpha=group["momentum"]))
                    flat[at : at + p.numel()] = u.flatten()
                at += p.numel()
            # every entry is written by exactly one rank, the others hold zeros
            dist.all_reduce(flat, op=dist.ReduceOp.SUM)
            at = 0
            for p in params:
                u = flat[at : at + p.numel()].view_as(p).type_as(p)
                p.add_(u, alpha=-group["lr"])
                at += p.numel()


def train(net, batches, steps):
    net.cuda()
    matrices = [p for p in net.parameters() if p.ndim == 2]
    others = [p for p in net.parameters() if p.ndim != 2]
    optimizers = [Muon(matrices), torch.optim.AdamW(others, lr=3e-4)]
    for _ in range(steps):
        net(*next(batches)).backward()
        for p in net.parameters():
            dist.all_reduce(p.grad, op=dist.ReduceOp.AVG)
        for o in optimizers:
            o.step()
        net.zero_grad(set_to_none=True)
