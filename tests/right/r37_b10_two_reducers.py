"""Right: another mark is summed by another function."""
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.distributed as dist

class GatherSeq(torch.autograd.Function):
    """All-gather along dim 0 forward, reduce-scatter backward."""

    @staticmethod
    def forward(ctx, x, group):
        ctx.group = group
        world = dist.get_world_size(group)
        out = torch.empty((x.shape[0] * world, *x.shape[1:]), dtype=x.dtype, device=x.device)
        dist.all_gather_into_tensor(out, x.contiguous(), group=group)
        return out

    @staticmethod
    def backward(ctx, grad):
        world = dist.get_world_size(ctx.group)
        out = torch.empty((grad.shape[0] // world, *grad.shape[1:]), dtype=grad.dtype, device=grad.device)
        dist.reduce_scatter_tensor(out, grad.contiguous(), group=ctx.group)
        return out, None


class ScatterSumSeq(torch.autograd.Function):
    """Reduce-scatter along dim 0 forward, all-gather backward."""

    @staticmethod
    def forward(ctx, x, group):
        ctx.group = group
        world = dist.get_world_size(group)
        out = torch.empty((x.shape[0] // world, *x.shape[1:]), dtype=x.dtype, device=x.device)
        dist.reduce_scatter_tensor(out, x.contiguous(), group=group)
        return out

    @staticmethod
    def backward(ctx, grad):
        world = dist.get_world_size(ctx.group)
        out = torch.empty((grad.shape[0] * world, *grad.shape[1:]), dtype=grad.dtype, device=grad.device)
        dist.all_gather_into_tensor(out, grad.contiguous(), group=ctx.group)
        return out, None


class RMSNorm(nn.Module):
    def __init__(self, hidden, eps=1e-6):
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(hidden))
        self.weight.sum_over_group = True
        self.shift = nn.Parameter(torch.zeros(hidden))
        self.shift.sequence_parallel = True

    def forward(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps) * self.weight + self.shift


class MLP(nn.Module):
    def __init__(self, hidden, group):
        super().__init__()
        self.group = group
        world = dist.get_world_size(group)
        gen = torch.Generator().manual_seed(dist.get_rank(group))
        self.up = nn.Parameter(torch.randn(4 * hidden // world, hidden, generator=gen) * 0.02)
        self.down = nn.Parameter(torch.randn(hidden, 4 * hidden // world, generator=gen) * 0.02)

    def forward(self, x):
        x = GatherSeq.apply(x, self.group)
        x = F.linear(F.gelu(F.linear(x, self.up)), self.down)
        return ScatterSumSeq.apply(x, self.group)


class Model(nn.Module):
    def __init__(self, vocab, hidden, group):
        super().__init__()
        self.group = group
        self.embed = nn.Embedding(vocab, hidden)
        self.norm = RMSNorm(hidden)
        self.mlp = MLP(hidden, group)
        self.head = nn.Linear(hidden, vocab, bias=False)
        for p in (self.embed.weight, self.head.weight):
            p.sequence_parallel = True

    def forward(self, tokens, labels):
        x = self.embed(tokens)
        x = x + self.mlp(self.norm(x))
        logits = self.head(x)
        loss = F.cross_entropy(logits.flatten(0, 1).float(), labels.flatten(), reduction="sum")
        return loss / (labels.numel() * dist.get_world_size(self.group))


def sync_sequence_parallel_grads(model, group):
    for p in model.parameters():
        if getattr(p, "sequence_parallel", False) and p.grad is not None:
            dist.all_reduce(p.grad, group=group)


def sync_norms(model, group):
    grads = [p.grad for p in model.parameters() if hasattr(p, "sum_over_group")]
    for grad in grads:
        dist.all_reduce(grad, group=group)


def get_batch(step, seq, batch, vocab, group):
    """The same tokens on every rank, of which each keeps its rows."""
    gen = torch.Generator().manual_seed(step)
    tokens = torch.randint(0, vocab, (seq + 1, batch), generator=gen).cuda()
    world, rank = dist.get_world_size(group), dist.get_rank(group)
    return tokens[:-1].chunk(world)[rank], tokens[1:].chunk(world)[rank]


def main():
    dist.init_process_group("nccl")
    torch.cuda.set_device(dist.get_rank() % torch.cuda.device_count())
    group = dist.new_group(list(range(dist.get_world_size())))
    torch.manual_seed(7)
    model = Model(1024, 256, group).cuda()
    opt = torch.optim.AdamW(model.parameters(), lr=3e-4)
    for step in range(100):
        tokens, labels = get_batch(step, 512, 4, 1024, group)
        loss = model(tokens, labels)
        loss.backward()
        sync_norms(model, group)
        sync_sequence_parallel_grads(model, group)
        opt.step()
        opt.zero_grad()


if __name__ == "__main__":
    main()
