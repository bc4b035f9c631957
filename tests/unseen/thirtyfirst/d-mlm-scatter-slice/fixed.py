"""Minimal Megatron style model with sequence parallel regions between the matmuls."""
import os

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

TP_GROUP = None


def _tp():
    return dist.get_rank(TP_GROUP), dist.get_world_size(TP_GROUP)


def _split_along_first_dim(x):
    rank, size = _tp()
    return x.chunk(size, dim=0)[rank].contiguous()


def _gather_along_first_dim(x):
    _, size = _tp()
    out = torch.empty((x.size(0) * size, *x.shape[1:]), dtype=x.dtype, device=x.device)
    dist.all_gather_into_tensor(out, x.contiguous(), group=TP_GROUP)
    return out


def _reduce_scatter_along_first_dim(x):
    _, size = _tp()
    out = torch.empty((x.size(0) // size, *x.shape[1:]), dtype=x.dtype, device=x.device)
    dist.reduce_scatter_tensor(out, x.contiguous(), group=TP_GROUP)
    return out


class _ScatterToSequenceParallelRegion(torch.autograd.Function):
    """Keep this rank's part of a tensor that all ranks computed in full."""

    @staticmethod
    def forward(ctx, x):
        ctx.full_shape = x.shape
        return _split_along_first_dim(x)

    @staticmethod
    def backward(ctx, grad_output):
        grad_input = _gather_along_first_dim(grad_output)
        assert grad_input.shape == ctx.full_shape
        return grad_input


class _GatherFromSequenceParallelRegion(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return _gather_along_first_dim(x)

    @staticmethod
    def backward(ctx, grad_output):
        return _reduce_scatter_along_first_dim(grad_output)


class _ReduceScatterToSequenceParallelRegion(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return _reduce_scatter_along_first_dim(x)

    @staticmethod
    def backward(ctx, grad_output):
        return _gather_along_first_dim(grad_output)


def sequence_parallel_(module):
    for param in module.parameters():
        param.sequence_parallel = True
    return module


class MLP(nn.Module):
    def __init__(self, hidden, ffn):
        super().__init__()
        rank, size = _tp()
        fc1, fc2 = torch.randn(ffn, hidden) * 0.02, torch.randn(hidden, ffn) * 0.02
        self.fc1 = nn.Parameter(fc1.chunk(size, dim=0)[rank].clone())
        self.fc2 = nn.Parameter(fc2.chunk(size, dim=1)[rank].clone())

    def forward(self, x):
        x = _GatherFromSequenceParallelRegion.apply(x)
        x = F.gelu(F.linear(x, self.fc1))
        return _ReduceScatterToSequenceParallelRegion.apply(F.linear(x, self.fc2))


class GPT(nn.Module):
    def __init__(self, vocab, max_seq, hidden, layers):
        super().__init__()
        self.word_embeddings = nn.Embedding(vocab, hidden)
        self.position_embeddings = nn.Embedding(max_seq, hidden)
        self.norms = nn.ModuleList(sequence_parallel_(nn.LayerNorm(hidden)) for _ in range(layers))
        self.mlps = nn.ModuleList(MLP(hidden, 4 * hidden) for _ in range(layers))
        self.final_norm = sequence_parallel_(nn.LayerNorm(hidden))
        self.output_layer = sequence_parallel_(nn.Linear(hidden, vocab, bias=False))

    def forward(self, tokens):
        # tokens: [s, b]
        positions = torch.arange(tokens.size(0), device=tokens.device).unsqueeze(1)
        hidden = self.word_embeddings(tokens) + self.position_embeddings(positions)
        hidden = _ScatterToSequenceParallelRegion.apply(hidden)
        for norm, mlp in zip(self.norms, self.mlps):
            hidden = hidden + mlp(norm(hidden))
        return self.output_layer(self.final_norm(hidden))


def allreduce_sequence_parallel_grads(model):
    for param in model.parameters():
        if getattr(param, "sequence_parallel", False):
            dist.all_reduce(param.grad, group=TP_GROUP)


def main(vocab=512, seq=64, batch=4, hidden=64, layers=2, steps=10):
    global TP_GROUP
    backend = "nccl" if torch.cuda.is_available() else "gloo"
    dist.init_process_group(backend)
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if backend == "nccl" else torch.device("cpu")
    if backend == "nccl":
        torch.cuda.set_device(device)
    TP_GROUP = dist.new_group(list(range(dist.get_world_size())))

    torch.manual_seed(1)
    model = GPT(vocab, seq, hidden, layers).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    generator = torch.Generator().manual_seed(2)
    for step in range(steps):
        data = torch.randint(vocab, (seq + 1, batch), generator=generator).to(device)
        logits = model(data[:-1])
        labels = _split_along_first_dim(data[1:])
        loss = F.cross_entropy(logits.flatten(0, 1), labels.flatten(), reduction="sum") / (seq * batch)
        optimizer.zero_grad()
        loss.backward()
        allreduce_sequence_parallel_grads(model)
        optimizer.step()
        total = loss.detach().clone()
        dist.all_reduce(total, group=TP_GROUP)
        if dist.get_rank() == 0:
            print(f"step {step} loss {total.item():.5f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
