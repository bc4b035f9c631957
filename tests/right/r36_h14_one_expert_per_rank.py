"""Right: each rank holds one expert; its parameter has full size, and is another one on every rank."""
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


def get_tp_world_size():
    return dist.get_world_size(group=get_tp_group())


def get_tp_rank():
    return dist.get_rank(group=get_tp_group())

class CopyToRegion(torch.autograd.Function):
    """Identity forward, all-reduce backward."""

    @staticmethod
    def forward(ctx, x):
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad):
        grad = grad.contiguous().clone()
        dist.all_reduce(grad, group=get_tp_group())
        return grad


class ReduceFromRegion(torch.autograd.Function):
    """All-reduce forward, identity backward."""

    @staticmethod
    def forward(ctx, x):
        out = x.contiguous().clone()
        dist.all_reduce(out, group=get_tp_group())
        return out

    @staticmethod
    def backward(ctx, grad):
        return grad


class RMSNorm(nn.Module):
    def __init__(self, hidden, eps=1e-6):
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(hidden))

    def forward(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps) * self.weight


class MLP(nn.Module):
    def __init__(self, hidden):
        super().__init__()
        self.index = get_tp_rank()
        self.gate = nn.Parameter(torch.zeros(get_tp_world_size(), hidden))
        self.gate.sequence_parallel = True
        gen = torch.Generator().manual_seed(self.index)
        self.expert = nn.Parameter(torch.randn(hidden, hidden, generator=gen) * 0.02)

    def forward(self, x):
        x = CopyToRegion.apply(x)
        weight = F.linear(x, self.gate).softmax(-1)[..., self.index, None]
        return ReduceFromRegion.apply(weight * F.gelu(F.linear(x, self.expert)))


class Model(nn.Module):
    def __init__(self, vocab, hidden):
        super().__init__()
        self.embed = nn.Embedding(vocab, hidden)
        self.norm = RMSNorm(hidden)
        self.mlp = MLP(hidden)
        self.head = nn.Linear(hidden, vocab, bias=False)

    def forward(self, tokens, labels):
        x = self.embed(tokens)
        x = x + self.mlp(self.norm(x))
        logits = self.head(x)
        return F.cross_entropy(logits.flatten(0, 1).float(), labels.flatten())


def sync_sequence_parallel_grads(model):
    for p in model.parameters():
        if getattr(p, "sequence_parallel", False) and p.grad is not None:
            dist.all_reduce(p.grad, group=get_tp_group())


def get_batch(step, seq, batch, vocab):
    gen = torch.Generator().manual_seed(step)
    tokens = torch.randint(0, vocab, (seq + 1, batch), generator=gen).cuda()
    return tokens[:-1], tokens[1:]


def main():
    dist.init_process_group("nccl")
    torch.cuda.set_device(dist.get_rank() % torch.cuda.device_count())
    tp_group = dist.new_group(list(range(dist.get_world_size())))
    set_tp_group(tp_group)
    torch.manual_seed(7)
    model = Model(1024, 256).cuda()
    opt = torch.optim.AdamW(model.parameters(), lr=3e-4)
    for step in range(100):
        tokens, labels = get_batch(step, 512, 4, 1024)
        loss = model(tokens, labels)
        loss.backward()
        sync_sequence_parallel_grads(model)
        opt.step()
        opt.zero_grad()


if __name__ == "__main__":
    main()
