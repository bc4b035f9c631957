"""QK layernorm across all heads (OLMo-2 style) for tensor parallel attention.

The RMS statistic is taken over the full projection width although each rank
only holds a slice of the heads.
"""
import os

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn


class _AllReduceStatistics(torch.autograd.Function):
    """Sum of a per-token statistic over the model parallel group.

    The result is used by each rank to normalize its own slice of the features.
    """

    @staticmethod
    def forward(ctx, stat, group):
        ctx.group = group
        stat = stat.clone()
        dist.all_reduce(stat, group=group)
        return stat

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output, None  # BUG


class _CopyToModelParallel(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        ctx.group = group
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad_output):
        grad_input = grad_output.contiguous().clone()
        dist.all_reduce(grad_input, group=ctx.group)
        return grad_input, None


class _ReduceFromModelParallel(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        x = x.contiguous().clone()
        dist.all_reduce(x, group=group)
        return x

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output, None


class GlobalRMSNorm(nn.Module):
    def __init__(self, full_dim, group, eps=1e-6):
        super().__init__()
        self.full_dim, self.group, self.eps = full_dim, group, eps
        self.scale = nn.Parameter(torch.ones(full_dim // dist.get_world_size(group)))

    def forward(self, x):
        dtype = x.dtype
        x = x.float()
        sum_sq = x.square().sum(dim=-1, keepdim=True)
        sum_sq = _AllReduceStatistics.apply(sum_sq, self.group)
        x = x * torch.rsqrt(sum_sq / self.full_dim + self.eps)
        return x.to(dtype) * self.scale


class ParallelSelfAttention(nn.Module):
    def __init__(self, hidden, num_heads, group):
        super().__init__()
        self.group = group
        size, rank = dist.get_world_size(group), dist.get_rank(group)
        self.head_dim = hidden // num_heads
        full = {name: torch.randn(hidden, hidden) * 0.02 for name in ("q", "k", "v", "o")}
        self.q = nn.Parameter(full["q"].chunk(size, 0)[rank].clone())
        self.k = nn.Parameter(full["k"].chunk(size, 0)[rank].clone())
        self.v = nn.Parameter(full["v"].chunk(size, 0)[rank].clone())
        self.o = nn.Parameter(full["o"].chunk(size, 1)[rank].clone())
        self.query_layernorm = GlobalRMSNorm(hidden, group)
        self.key_layernorm = GlobalRMSNorm(hidden, group)

    def _heads(self, x):
        return x.view(x.size(0), x.size(1), -1, self.head_dim).transpose(1, 2)

    def forward(self, x):
        x = _CopyToModelParallel.apply(x, self.group)
        q = self.query_layernorm(F.linear(x, self.q))
        k = self.key_layernorm(F.linear(x, self.k))
        v = F.linear(x, self.v)
        out = F.scaled_dot_product_attention(self._heads(q), self._heads(k), self._heads(v), is_causal=True)
        out = F.linear(out.transpose(1, 2).flatten(2), self.o)
        return _ReduceFromModelParallel.apply(out, self.group)


class Transformer(nn.Module):
    def __init__(self, vocab, hidden, num_heads, num_layers, group):
        super().__init__()
        self.embed = nn.Embedding(vocab, hidden)
        self.norms = nn.ModuleList(nn.LayerNorm(hidden) for _ in range(num_layers))
        self.layers = nn.ModuleList(ParallelSelfAttention(hidden, num_heads, group) for _ in range(num_layers))
        self.final_norm = nn.LayerNorm(hidden)
        self.head = nn.Linear(hidden, vocab, bias=False)

    def forward(self, tokens):
        x = self.embed(tokens)
        for norm, layer in zip(self.norms, self.layers):
            x = x + layer(norm(x))
        return self.head(self.final_norm(x))


def main(vocab=256, hidden=64, num_heads=8, num_layers=2, steps=10):
    backend = "nccl" if torch.cuda.is_available() else "gloo"
    dist.init_process_group(backend)
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if backend == "nccl" else torch.device("cpu")
    if backend == "nccl":
        torch.cuda.set_device(device)
    group = dist.new_group(list(range(dist.get_world_size())))

    torch.manual_seed(0)
    model = Transformer(vocab, hidden, num_heads, num_layers, group).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    generator = torch.Generator().manual_seed(1)
    for step in range(steps):
        batch = torch.randint(vocab, (4, 65), generator=generator).to(device)
        logits = model(batch[:, :-1])
        loss = F.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten())
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        if dist.get_rank() == 0:
            print(f"step {step} loss {loss.item():.5f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
