"""Tensor-parallel plan of a decoder with sequence-parallel norms."""
# meta-pytorch/torchtune issue 2420: norms that are not in the plan keep plain weights, and see only this rank's part of the sequence.
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)


class FeedForward(nn.Module):
    def __init__(self, dim, hidden):
        super().__init__()
        self.w1 = nn.Linear(dim, hidden, bias=False)
        self.w2 = nn.Linear(hidden, dim, bias=False)
        self.w3 = nn.Linear(dim, hidden, bias=False)

    def forward(self, x):
        return self.w2(F.silu(self.w1(x)) * self.w3(x))


class TransformerLayer(nn.Module):
    def __init__(self, dim, hidden):
        super().__init__()
        self.mlp_norm = nn.LayerNorm(dim)
        self.mlp = FeedForward(dim, hidden)
        self.out_norm = nn.LayerNorm(dim)

    def forward(self, x):
        # x: [b, s/tp, d]
        return x + self.out_norm(self.mlp(self.mlp_norm(x)))


class Decoder(nn.Module):
    def __init__(self, vocab, dim, hidden, depth):
        super().__init__()
        self.tok_embeddings = nn.Embedding(vocab, dim)
        self.layers = nn.ModuleList([TransformerLayer(dim, hidden) for _ in range(depth)])
        self.norm = nn.LayerNorm(dim)
        self.output = nn.Linear(dim, vocab, bias=False)

    def forward(self, tokens):
        h = self.tok_embeddings(tokens)
        for layer in self.layers:
            h = layer(h)
        return self.output(self.norm(h))


def apply_tp(model: Decoder, tp_mesh: DeviceMesh):
    parallelize_module(
        model,
        tp_mesh,
        {
            "tok_embeddings": RowwiseParallel(input_layouts=Replicate(), output_layouts=Shard(1)),
            "norm": SequenceParallel(),
            "output": ColwiseParallel(input_layouts=Shard(1), output_layouts=Replicate()),
        },
    )
    layer_plan = {
        "mlp_norm": SequenceParallel(),
        "mlp": PrepareModuleInput(input_layouts=(Shard(1),), desired_input_layouts=(Replicate(),)),
        "mlp.w1": ColwiseParallel(),
        "mlp.w2": RowwiseParallel(output_layouts=Shard(1)),
        "out_norm": SequenceParallel(use_local_output=True),
        "mlp.w3": ColwiseParallel(),
    }
    for layer in model.layers:
        parallelize_module(layer, tp_mesh, layer_plan)
    return model
