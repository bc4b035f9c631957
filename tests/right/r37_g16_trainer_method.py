"""Right: the trainer sums gains by name in its own method, by world collective."""
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.distributed as dist

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
        self.weight.sequence_parallel = True

    def forward(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps) * self.weight


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


class Model(nn.Module):
    def __init__(self, vocab, hidden, tp_group):
        super().__init__()
        self.tp_group = tp_group
        self.embed = nn.Embedding(vocab, hidden)
        self.norm = RMSNorm(hidden)
        self.mlp = MLP(hidden, tp_group)
        self.gain = nn.Parameter(torch.ones(hidden))
        self.head = nn.Linear(hidden, vocab, bias=False)
        for p in (self.embed.weight, self.head.weight):
            p.sequence_parallel = True

    def forward(self, tokens, labels):
        x = self.embed(tokens)
        x = x + self.mlp(self.norm(x))
        x = x * self.gain
        logits = self.head(x)
        loss = F.cross_entropy(logits.flatten(0, 1).float(), labels.flatten(), reduction="sum")
        return loss / (labels.numel() * dist.get_world_size(self.tp_group))


class Trainer:
    def __init__(self, model, tp_group):
        self.model, self.tp_group = model, tp_group
        self.opt = torch.optim.AdamW(model.parameters(), lr=3e-4)

    def on_before_optimizer_step(self):
        handles = []
        for name, p in self.model.named_parameters():
            if getattr(p, "sequence_parallel", False):
                handles.append(dist.all_reduce(p.grad, group=self.tp_group, async_op=True))
            if "gain" in name:
                handles.append(dist.all_reduce(p.grad, async_op=True))
        for handle in handles:
            handle.wait()

    def fit(self, steps):
        for step in range(steps):
            tokens, labels = get_batch(step, 512, 4, 1024, self.tp_group)
            self.model(tokens, labels).backward()
            self.on_before_optimizer_step()
            self.opt.step()
            self.opt.zero_grad()


def get_batch(step, seq, batch, vocab, tp_group):
    """The same tokens on every rank, of which each keeps its rows."""
    gen = torch.Generator().manual_seed(step)
    tokens = torch.randint(0, vocab, (seq + 1, batch), generator=gen).cuda()
    world, rank = dist.get_world_size(tp_group), dist.get_rank(tp_group)
    return tokens[:-1].chunk(world)[rank], tokens[1:].chunk(world)[rank]


def main():
    dist.init_process_group("nccl")
    torch.cuda.set_device(dist.get_rank() % torch.cuda.device_count())
    torch.manual_seed(7)
    model = Model(1024, 256, dist.group.WORLD).cuda()
    Trainer(model, dist.group.WORLD).fit(100)


if __name__ == "__main__":
    main()
