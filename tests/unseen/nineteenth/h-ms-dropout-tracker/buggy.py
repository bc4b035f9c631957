"""Dropout of a model-parallel decoder layer (written from memory of facebookresearch/metaseq and Megatron)."""
import contextlib

import torch
from megatron.core.tensor_parallel import ColumnParallelLinear, RowParallelLinear, get_cuda_rng_tracker


class ModelParallelDecoderLayer(torch.nn.Module):
    def __init__(self, config, qkv: ColumnParallelLinear, out: RowParallelLinear, heads_per_rank, p=0.1):
        super().__init__()
        self.sequence_parallel = config.sequence_parallel
        self.qkv, self.out = qkv, out
        self.heads, self.p = heads_per_rank, p
        self.norm = torch.nn.LayerNorm(config.hidden_size)
        for param in self.norm.parameters():
            setattr(param, "sequence_parallel", config.sequence_parallel)

    def attend(self, x):
        qkv, _ = self.qkv(x)  # the heads of this rank
        s, b, _ = qkv.shape
        q, k, v = qkv.view(s, b, self.heads, -1).permute(1, 2, 0, 3).chunk(3, dim=-1)
        weights = torch.softmax(q @ k.transpose(-1, -2) / q.size(-1) ** 0.5, dim=-1)
        with get_cuda_rng_tracker().fork():
            weights = torch.nn.functional.dropout(weights, self.p, self.training)
        return (weights @ v).permute(2, 0, 1, 3).flatten(-2)

    def forward(self, x):
        # x: [s, b, h], or [s / tp, b, h] with sequence parallelism
        out, _ = self.out(self.attend(self.norm(x)))
        with get_cuda_rng_tracker().fork():  # BUG: without SP, out is the same on all ranks, the mask is not
            out = torch.nn.functional.dropout(out, self.p, self.training)
        return x + out
