"""Right: the whole down projections of latent attention are applied before the copy to the split heads."""
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
    """Queries of a low rank: whole `down`, whole norm, split `up`, split `out`."""

    def __init__(self, hidden, tp_group, rank=32):
        super().__init__()
        self.tp_group = tp_group
        inner = hidden // dist.get_world_size(tp_group)
        self.down = nn.Linear(hidden, rank, bias=False)
        self.norm = RMSNorm(rank)
        self.up = nn.Parameter(torch.randn(inner, rank) * 0.02)
        self.gain = nn.Parameter(torch.ones(1))
        self.gain.sequence_parallel = True
        self.out = nn.Parameter(torch.randn(hidden, inner) * 0.02)

    def forward(self, x):
        latent = self.norm(self.down(x))
        latent = CopyToRegion.apply(latent, self.tp_group)
        y = torch.tanh(F.linear(latent, self.up) * self.gain)
        return ReduceFromRegion.apply(F.linear(y, self.out), self.tp_group)


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


def get_batch(step, seq, batch, vocab):
    gen = torch.Generator().manual_seed(step)
    tokens = torch.randint(0, vocab, (seq + 1, batch), generator=gen).cuda()
    return tokens[:-1], tokens[1:]


def main():
    dist.init_process_group("nccl")
    torch.cuda.set_device(dist.get_rank() % torch.cuda.device_count())
    tp_group = dist.new_group(list(range(dist.get_world_size())))
    torch.manual_seed(7)
    model = Model(1024, 256, tp_group).cuda()
    opt = torch.optim.AdamW(model.parameters(), lr=3e-4)
    for step in range(100):
        tokens, labels = get_batch(step, 512, 4, 1024)
        loss = model(tokens, labels)
        loss.backward()
        sync_sequence_parallel_grads(model, tp_group)
        opt.step()
        opt.zero_grad()


if __name__ == "__main__":
    main()
