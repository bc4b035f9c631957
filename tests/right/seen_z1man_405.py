import torch
import torch.distributed as dist
import torch.nn.functional as F


class SplitDown(torch.autograd.Function):
    """Split; the gradient is gathered and divided: the wrapper averages over sequence ranks as well."""
    @staticmethod
    def forward(ctx, x, group):
        ctx.group = group
        return x.chunk(group.size(), 1)[dist.get_rank(group)].contiguous()

    @staticmethod
    def backward(ctx, g):
        parts = [torch.empty_like(g) for _ in range(ctx.group.size())]
        dist.all_gather(parts, g.contiguous(), group=ctx.group)
        return torch.cat(parts, 1) / ctx.group.size(), None


class GatherUp(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        ctx.group = group
        parts = [torch.empty_like(x) for _ in range(group.size())]
        dist.all_gather(parts, x.contiguous(), group=group)
        return torch.cat(parts, 1)

    @staticmethod
    def backward(ctx, g):
        g = g * ctx.group.size()
        return g.chunk(ctx.group.size(), 1)[dist.get_rank(ctx.group)].contiguous(), None


class DiT(torch.nn.Module):
    def __init__(self, embed, blocks, final, group):
        super().__init__()
        self.embed, self.blocks, self.final, self.group = embed, blocks, final, group

    def forward(self, x, t):
        x = SplitDown.apply(self.embed(x), self.group)
        for b in self.blocks:
            x = b(x, t)
        return self.final(GatherUp.apply(x, self.group))


def main(embed, blocks, final, group, loader):
    model = DiT(embed, blocks, final, group)
    opt = torch.optim.AdamW(model.parameters())
    for x, t, y in loader:
        F.mse_loss(model(x, t), y).backward()
        for p in model.parameters():
            dist.all_reduce(p.grad, op=dist.ReduceOp.AVG)
        opt.step()
        opt.zero_grad()
