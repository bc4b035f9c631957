"""Right: the marks belong to another group than the data-parallel one called `group`, over which the unmarked are averaged."""
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


class ReduceFromRegion(torch.autograd.Function):
    """All-reduce forward, identity backward."""

    @staticmethod
    def forward(ctx, x, tp_group):
        out = x.contiguous().clone()
        dist.all_reduce(out, group=tp_group)
        return out

    @staticmethod
    def backward(ctx, grad):
        return grad, None


class RMSNorm(nn.Module):
    def __init__(self, hidden, eps=1e-6):
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(hidden))

    def forward(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps) * self.weight


class MLP(nn.Module):
    def __init__(self, hidden, tp_group):
        super().__init__()
        self.tp_group = tp_group
        world = dist.get_world_size(tp_group)
        self.slope = nn.Parameter(torch.ones(()))
        self.slope.sequence_parallel = True
        self.bias = nn.Parameter(torch.zeros(hidden))
        gen = torch.Generator().manual_seed(dist.get_rank(tp_group))
        self.up = nn.Parameter(torch.randn(4 * hidden // world, hidden, generator=gen) * 0.02)
        self.down = nn.Parameter(torch.randn(hidden, 4 * hidden // world, generator=gen) * 0.02)

    def forward(self, x):
        x = CopyToRegion.apply(x, self.tp_group)
        x = F.linear(F.gelu(F.linear(x, self.up)) * self.slope, self.down)
        return ReduceFromRegion.apply(x, self.tp_group) + self.bias


class Model(nn.Module):
    def __init__(self, vocab, hidden, tp_group):
        super().__init__()
        self.tp_group = tp_group
        self.embed = nn.Embedding(vocab, hidden)
        self.norm = RMSNorm(hidden)
        self.mlp = MLP(hidden, tp_group)
        self.head = nn.Linear(hidden, vocab, bias=False)

    def forward(self, tokens, labels):
        x = self.embed(tokens)
        x = x + self.mlp(self.norm(x))
        logits = self.head(x)
        return F.cross_entropy(logits.flatten(0, 1).float(), labels.flatten())


def sync_sequence_parallel_grads(model, tp_group):
    for p in model.parameters():
        if getattr(p, "sequence_parallel", False) and p.grad is not None:
            dist.all_reduce(p.grad, group=tp_group)


def average_gradients(model, group):
    for p in model.parameters():
        dist.all_reduce(p.grad, group=group)
        p.grad.div_(dist.get_world_size(group))


def groups(tp):
    world, rank = dist.get_world_size(), dist.get_rank()
    mine = [None, None]
    for first in range(0, world, tp):
        group = dist.new_group(list(range(first, first + tp)))
        if first <= rank < first + tp:
            mine[0] = group
    for offset in range(tp):
        group = dist.new_group(list(range(offset, world, tp)))
        if rank % tp == offset:
            mine[1] = group
    return mine


def get_batch(step, seq, batch, vocab):
    gen = torch.Generator().manual_seed(step)
    tokens = torch.randint(0, vocab, (seq + 1, batch), generator=gen).cuda()
    return tokens[:-1], tokens[1:]


def main():
    dist.init_process_group("nccl")
    torch.cuda.set_device(dist.get_rank() % torch.cuda.device_count())
    tp_group, group = groups(4)
    torch.manual_seed(7)
    model = Model(1024, 256, tp_group).cuda()
    opt = torch.optim.AdamW(model.parameters(), lr=3e-4)
    for step in range(100):
        tokens, labels = get_batch(step * dist.get_world_size(group) + dist.get_rank(group), 512, 4, 1024)
        loss = model(tokens, labels)
        loss.backward()
        sync_sequence_parallel_grads(model, tp_group)
        average_gradients(model, group)
        opt.step()
        opt.zero_grad()


if __name__ == "__main__":
    main()
