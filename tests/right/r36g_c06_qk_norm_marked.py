"""Right: heads are split; the gains of queries and keys are marked, those of the residual stream see Invariant values."""
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


class Attention(nn.Module):
    """Heads split over the group; the queries and keys of the local heads are normed with one whole gain."""

    def __init__(self, hidden, heads):
        super().__init__()
        self.head_dim = hidden // heads
        self.local_heads = heads // dist.get_world_size(get_tp_group())
        self.qkv = nn.Parameter(torch.randn(3 * self.local_heads * self.head_dim, hidden) * 0.02)
        self.out = nn.Parameter(torch.randn(hidden, self.local_heads * self.head_dim) * 0.02)
        self.q_norm = RMSNorm(self.head_dim)
        self.k_norm = RMSNorm(self.head_dim)
        self.q_norm.weight.sequence_parallel = True
        self.k_norm.weight.sequence_parallel = True

    def forward(self, x):
        s, b, _ = x.shape
        x = CopyToRegion.apply(x)
        q, k, v = F.linear(x, self.qkv).view(s, b, 3, self.local_heads, self.head_dim).permute(2, 1, 3, 0, 4)
        q, k = self.q_norm(q), self.k_norm(k)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        y = F.linear(y.permute(2, 0, 1, 3).reshape(s, b, -1), self.out)
        return ReduceFromRegion.apply(y)


class Model(nn.Module):
    def __init__(self, vocab, hidden):
        super().__init__()
        self.embed = nn.Embedding(vocab, hidden)
        self.norm = RMSNorm(hidden)
        self.mlp = Attention(hidden, 8)
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
