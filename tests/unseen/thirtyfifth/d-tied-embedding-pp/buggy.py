"""Gradient synchronisation of a pipeline whose first and last stage share the embedding."""
# thread: uw-syfi/piper#13
import torch
import torch.distributed as dist
from torch import nn


class Stage(nn.Module):
    def __init__(self, layers, vocab, dim, is_first, is_last, tied_group):
        super().__init__()
        self.layers = nn.Sequential(*layers)
        self.is_first, self.is_last, self.tied_group = is_first, is_last, tied_group
        if is_first or is_last:
            self.tied = nn.Parameter(torch.randn(vocab, dim, device="cuda") * 0.02)
            dist.broadcast(self.tied.data, src=dist.get_global_rank(tied_group, 0), group=tied_group)

    def forward(self, x):
        if self.is_first:
            x = nn.functional.embedding(x, self.tied)
        x = self.layers(x)
        return x @ self.tied.t() if self.is_last else x


def sync_gradients(stage, dp_group):
    # tied_group: the first and the last stage of one pipeline replica
    for p in stage.parameters():
        if p.grad is not None:
            dist.all_reduce(p.grad, op=dist.ReduceOp.AVG, group=dp_group)  # BUG: no sum over the two copies


def train_step(schedule, stage, batch, dp_group, optimizer):
    optimizer.zero_grad()
    schedule.run(stage, batch)
    sync_gradients(stage, dp_group)
    optimizer.step()
