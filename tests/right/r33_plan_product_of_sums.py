import torch
from torch import nn
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    PrepareModuleOutput,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)


class Attention(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.wq = nn.Linear(n, n)
        self.wo = nn.Linear(n, n)

    def forward(self, x):
        return self.wo(self.wq(x))


class FeedForward(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.w1 = nn.Linear(n, 4 * n)
        self.w2 = nn.Linear(4 * n, n)
        self.w3 = nn.Linear(n, 4 * n)

    def forward(self, x):
        return self.w3(nn.functional.silu(self.w1(x))) * self.w2(nn.functional.silu(self.w1(x)))


class Block(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.attention = Attention(n)
        self.feed_forward = FeedForward(n)
        self.attention_norm = nn.RMSNorm(n)
        self.ffn_norm = nn.RMSNorm(n)

    def forward(self, x):
        h = x + self.attention(self.attention_norm(x))
        return h + self.feed_forward(self.ffn_norm(h))


def apply_tp(model, tp_mesh):
    for block in model.layers.values():
        plan = {
            "attention_norm": SequenceParallel(),
            "attention": PrepareModuleInput(input_layouts=(Shard(1),), desired_input_layouts=(Replicate(),)),
            "attention.wq": ColwiseParallel(),
            "attention.wo": RowwiseParallel(output_layouts=Shard(1)),
            "ffn_norm": SequenceParallel(),
            "feed_forward": PrepareModuleInput(input_layouts=(Shard(1),), desired_input_layouts=(Replicate(),)),
            "feed_forward.w1": ColwiseParallel(),
            "feed_forward.w2": RowwiseParallel(output_layouts=Shard(1)),
            "feed_forward.w3": RowwiseParallel(output_layouts=Shard(1)),
        }
        parallelize_module(block, tp_mesh, plan)
