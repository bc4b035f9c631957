"""Sequence-parallel MLP block with a per-token depth gate; replicated weights get a gradient hook."""
import torch
import torch.distributed._functional_collectives as funcol
import torch.nn.functional as F
from torch import nn


class SequenceParallelMLP(nn.Module):
    def __init__(self, dim, hidden, tp_group):
        super().__init__()
        self.tp_group = tp_group
        self.norm = nn.RMSNorm(dim)
        self.gate = nn.Linear(dim, 1)
        self.up = nn.Linear(dim, hidden // tp_group.size(), bias=False)  # column shard
        self.down = nn.Linear(hidden // tp_group.size(), dim, bias=False)  # row shard
        replicated = [*self.norm.parameters(), *self.gate.parameters()]
        for p in replicated:
            p.register_hook(self._sum_over_tp)

    def _sum_over_tp(self, grad):
        return funcol.wait_tensor(funcol.all_reduce(grad, "sum", self.tp_group))

    def forward(self, x):
        # x: [seq / tp, batch, dim]
        y = self.norm(x)
        alpha = torch.sigmoid(self.gate(y))
        y = funcol.all_gather_tensor_autograd(y, 0, self.tp_group)
        y = self.down(F.gelu(self.up(y)))
        y = funcol.reduce_scatter_tensor_autograd(y, "sum", 0, self.tp_group)
        return x + alpha * y
