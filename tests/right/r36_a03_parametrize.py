"""Right: the unmarked norm weight is used through a parametrization whose backward sums the gradient."""
import torch.nn.utils.parametrize as parametrize
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.distributed as dist

class CopyToRegion(torch.autograd.Function):
    """Identity forward, all-reduce backward."""

    @staticmethod
    def forward(ctx, x, tp_group):
        ctx.tp_group = tp_group
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad):
        grad = grad.contiguous().clone()
        dist.all_reduce(grad, group=ctx.tp_group)
        return grad, None


class GatherSeq(torch.autograd.Function):
    """All-gather along dim 0 forward, reduce-scatter backward."""

    @staticmethod
    def forward(ctx, x, tp_group):
        ctx.tp_group = tp_group
        world = dist.get_world_size(tp_group)
        out = torch.empty((x.shape[0] * world, *x.shape[1:]), dtype=x.dtype, device=x.device)
        dist.all_gather_into_tensor(out, x.contiguous(), group=tp_group)
        return out

    @staticmethod
    def backward(ctx, grad):
        world = dist.get_world_size(ctx.tp_group)
        out = torch.empty((grad.shape[0] // world, *grad.shape[1:]), dtype=grad.dtype, device=grad.device)
        dist.reduce_scatter_tensor(out, grad.contiguous(), group=ctx.tp_group)
        return out, None


class ScatterSumSeq(torch.autograd.Function):
    """Reduce-scatter along dim 0 forward, all-gather backward."""

    @staticmethod
    def forward(ctx, x, tp_group):
        ctx.tp_group = tp_group
        world = dist.get_world_size(tp_group)
        out = torch.empty((x.shape[0] // world, *x.shape[1:]), dtype=x.dtype, device=x.device)
        dist.reduce_scatter_tensor(out, x.contiguous(), group=tp_group)
        return out

    @staticmethod
    def backward(ctx, grad):
        world = dist.get_world_size(ctx.tp_group)
        out = torch.empty((grad.shape[0] * world, *grad.shape[1:]), dtype=grad.dtype, device=grad.device)
        dist.all_gather_into_tensor(out, grad.contiguous(), group=ctx.tp_group)
        return out, None


class RMSNorm(nn.Module):
    def __init__(self, hidden, eps=1e-6):
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(hidden))
        self.shift = nn.Parameter(torch.zeros(hidden))
        self.shift.sequence_parallel = True

    def forward(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps) * self.weight + self.shift


class MLP(nn.Module):
    def __init__(self, hidden, tp_group):
        super().__init__()
        self.tp_group = tp_group
        world = dist.get_world_size(tp_group)
        gen = torch.Generator().manual_seed(dist.get_rank(tp_group))
        self.up = nn.Parameter(torch.randn(4 * hidden // world, hidden, generator=gen) * 0.02)
        self.down = nn.Parameter(torch.randn(hidden, 4 * hidden // world, generator=gen) * 0.02)

    def forward(self, x):
        x = GatherSeq.apply(x, self.tp_group)
        x = F.linear(F.gelu(F.linear(x, self.up)), self.down)
        return ScatterSumSeq.apply(x, self.tp_group)


class SumGradOver(nn.Module):
    def __init__(self, tp_group):
        super().__init__()
        self.tp_group = tp_group

    def forward(self, weight):
        return CopyToRegion.apply(weight, self.tp_group)


class Model(nn.Module):
    def __init__(self, vocab, hidden, tp_group):
        super().__init__()
        self.tp_group = tp_group
        self.embed = nn.Embedding(vocab, hidden)
        self.norm = RMSNorm(hidden)
        self.mlp = MLP(hidden, tp_group)
        parametrize.register_parametrization(self.norm, "weight", SumGradOver(tp_group))
        self.head = nn.Linear(hidden, vocab, bias=False)
        for p in (self.embed.weight, self.head.weight):
            p.sequence_parallel = True

    def forward(self, tokens, labels):
        x = self.embed(tokens)
        x = x + self.mlp(self.norm(x))
        logits = self.head(x)
        loss = F.cross_entropy(logits.flatten(0, 1).float(), labels.flatten(), reduction="sum")
        return loss / (labels.numel() * dist.get_world_size(self.tp_group))


def sync_sequence_parallel_grads(model, tp_group):
    for p in model.parameters():
        if getattr(p, "sequence_parallel", False) and p.grad is not None:
            dist.all_reduce(p.grad, group=tp_group)


def get_batch(step, seq, batch, vocab, tp_group):
    """The same tokens on every rank, of which each keeps its rows."""
    gen = torch.Generator().manual_seed(step)
    tokens = torch.randint(0, vocab, (seq + 1, batch), generator=gen).cuda()
    world, rank = dist.get_world_size(tp_group), dist.get_rank(tp_group)
    return tokens[:-1].chunk(world)[rank], tokens[1:].chunk(world)[rank]


def main():
    dist.init_process_group("nccl")
    torch.cuda.set_device(dist.get_rank() % torch.cuda.device_count())
    tp_group = dist.new_group(list(range(dist.get_world_size())))
    torch.manual_seed(7)
    model = Model(1024, 256, tp_group).cuda()
    opt = torch.optim.AdamW(model.parameters(), lr=3e-4)
    for step in range(100):
        tokens, labels = get_batch(step, 512, 4, 1024, tp_group)
        loss = model(tokens, labels)
        loss.backward()
        sync_sequence_parallel_grads(model, tp_group)
        opt.step()
        opt.zero_grad()


if __name__ == "__main__":
    main()
