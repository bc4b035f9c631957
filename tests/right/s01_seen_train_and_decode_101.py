import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn


class Copy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        ctx.group = group
        return x.view_as(x)

    @staticmethod
    def backward(ctx, g):
        g = g.clone()
        dist.all_reduce(g, group=ctx.group)
        return g, None


class Reduce(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        x = x.clone()
        dist.all_reduce(x, group=group)
        return x

    @staticmethod
    def backward(ctx, g):
        return g, None


class MLP(nn.Module):
    def __init__(self, d, h, group):
        super().__init__()
        n = dist.get_world_size(group)
        self.group = group
        self.up, self.down = nn.Linear(d, h // n), nn.Linear(h // n, d, bias=False)

    def forward(self, x):
        return x + Reduce.apply(self.down(F.gelu(self.up(Copy.apply(x, self.group)))), self.group)

    def decode(self, x):
        y = self.down(F.gelu(self.up(x)))
        dist.all_reduce(y, group=self.group)
        return x + y


class Actor(nn.Module):
    def __init__(self, embed, blocks, head):
        super().__init__()
        self.embed, self.blocks, self.head = embed, nn.ModuleList(blocks), head

    def forward(self, ids):
        x = self.embed(ids)
        for b in self.blocks:
            x = b(x)
        return self.head(x)

    def next_token(self, ids):
        x = self.embed(ids)
        for b in self.blocks:
            x = b.decode(x)
        return self.head(x[:, -1]).argmax(-1, keepdim=True)

    @torch.no_grad()
    def generate(self, ids, n):
        for _ in range(n):
            ids = torch.cat([ids, self.next_token(ids)], 1)
        return ids


def train(actor, reward, loader, opt, dp_group):
    for ids in loader:
        seq = actor.generate(ids, 32)
        r = reward(seq)
        lp = actor(seq)[:, :-1].log_softmax(-1).gather(-1, seq[:, 1:, None]).squeeze(-1)
        loss = -(lp.sum(1) * (r - r.mean())).mean()
        opt.zero_grad()
        loss.backward()
        for p in actor.parameters():
            dist.all_reduce(p.grad, op=dist.ReduceOp.AVG, group=dp_group)
        opt.step()
