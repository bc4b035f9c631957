"""Right: the unmarked norms are frozen."""
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.distributed as dist

_TP_GROUP = None


def get_tp_group():
    return _TP_GROUP


def set_tp_group(tp_group):
    global _TP_GROUP
    _TP_GROUP = tp_group

class GatherSeq(torch.autograd.Function):
    """All-gather along dim 0 forward, reduce-scatter backward."""

    @staticmethod
    def forward(ctx, x):
        world = dist.get_world_size(get_tp_group())
        out = torch.empty((x.shape[0] * world, *x.shape[1:]), dtype=x.dtype, device=x.device)
        dist.all_gather_into_tensor(out, x.contiguous(), group=get_tp_group())
        return out

    @staticmethod
    def backward(ctx, grad):
        world = dist.get_world_size(get_tp_group())
        out = torch.empty((grad.shape[0] // world, *grad.shape[1:]), dtype=grad.dtype, device=grad.device)
        dist.reduce_scatter_tensor(out, grad.contiguous(), group=get_tp_group())
        return out


class ScatterSumSeq(torch.autograd.Function):
    """Reduce-scatter along dim 0 forward, all-gather backward."""

    @staticmethod
    def forward(ctx, x):
        world = dist.get_world_size(get_tp_group())
        out = torch.empty((x.shape[0] // world, *x.shape[1:]), dtype=x.dtype, device=x.device)
        dist.reduce_scatter_tensor(out, x.contiguous(), group=get_tp_group())
        return out

    @staticmethod
    def backward(ctx, grad):
        world = dist.get_world_size(get_tp_group())
        out = torch.empty((grad.shape[0] * world, *grad.shape[1:]), dtype=grad.dtype, device=grad.device)
        dist.all_gather_into_tensor(out, grad.contiguous(), group=get_tp_group())
        return out


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
    def __init__(self, hidden):
        super().__init__()
        world = dist.get_world_size(get_tp_group())
        gen = torch.Generator().manual_seed(dist.get_rank(get_tp_group()))
        self.up = nn.Parameter(torch.randn(4 * hidden // world, hidden, generator=gen) * 0.02)
        self.down = nn.Parameter(torch.randn(hidden, 4 * hidden // world, generator=gen) * 0.02)

    def forward(self, x):
        x = GatherSeq.apply(x)
        x = F.linear(F.gelu(F.linear(x, self.up)), self.down)
        return ScatterSumSeq.apply(x)


class Model(nn.Module):
    def __init__(self, vocab, hidden):
        super().__init__()
        self.embed = nn.Embedding(vocab, hidden)
        self.norm = RMSNorm(hidden)
        self.mlp = MLP(hidden)
        self.head = nn.Linear(hidden, vocab, bias=False)
        for p in (self.embed.weight, self.head.weight):
            p.sequence_parallel = True
        for p in self.norm.parameters():
            p.requires_grad_(False)

    def forward(self, tokens, labels):
        x = self.embed(tokens)
        x = x + self.mlp(self.norm(x))
        logits = self.head(x)
        loss = F.cross_entropy(logits.flatten(0, 1).float(), labels.flatten(), reduction="sum")
        return loss / (labels.numel() * dist.get_world_size(get_tp_group()))


def sync_sequence_parallel_grads(model):
    for p in model.parameters():
        if getattr(p, "sequence_parallel", False) and p.grad is not None:
            dist.all_reduce(p.grad, group=get_tp_group())


def get_batch(step, seq, batch, vocab):
    """The same tokens on every rank, of which each keeps its rows."""
    gen = torch.Generator().manual_seed(step)
    tokens = torch.randint(0, vocab, (seq + 1, batch), generator=gen).cuda()
    world, rank = dist.get_world_size(get_tp_group()), dist.get_rank(get_tp_group())
    return tokens[:-1].chunk(world)[rank], tokens[1:].chunk(world)[rank]


def main():
    dist.init_process_group("nccl")
    torch.cuda.set_device(dist.get_rank() % torch.cuda.device_count())
    tp_group = dist.new_group(list(range(dist.get_world_size())))
    set_tp_group(tp_group)
    torch.manual_seed(7)
    model = Model(1024, 256).cuda()
    opt = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=3e-4)
    for step in range(100):
        tokens, labels = get_batch(step, 512, 4, 1024)
        loss = model(tokens, labels)
        loss.backward()
        sync_sequence_parallel_grads(model)
        opt.step()
        opt.zero_grad()


if __name__ == "__main__":
    main()
