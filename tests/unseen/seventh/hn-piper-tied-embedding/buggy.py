"""Optimizer step of a pipeline stage with tied input and output embeddings.

Source: https://github.com/uw-syfi/piper/issues/13
"""
import torch
import torch.distributed as dist
import torch.nn as nn


class FirstStage(nn.Module):
    def __init__(self, vocab, hidden, blocks):
        super().__init__()
        self.tied_weight = nn.Parameter(torch.randn(vocab, hidden) * 0.02)
        self.blocks = nn.ModuleList(blocks)

    def forward(self, ids):
        x = nn.functional.embedding(ids, self.tied_weight)
        for block in self.blocks:
            x = block(x)
        return x


class LastStage(nn.Module):
    def __init__(self, vocab, hidden, blocks):
        super().__init__()
        self.blocks = nn.ModuleList(blocks)
        self.tied_weight = nn.Parameter(torch.empty(vocab, hidden))

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return nn.functional.linear(x, self.tied_weight)


def tie(stage, first_rank, tied_group):
    """tied_group: the ranks of the first and of the last stage of one pipeline."""
    if hasattr(stage, "tied_weight"):
        dist.broadcast(stage.tied_weight.data, src=first_rank, group=tied_group)


def optimizer_step(stage, optimizer, dp_group, tied_group):
    for p in stage.parameters():
        dist.all_reduce(p.grad, op=dist.ReduceOp.AVG, group=dp_group)
    optimizer.step()  # BUG
    optimizer.zero_grad()
