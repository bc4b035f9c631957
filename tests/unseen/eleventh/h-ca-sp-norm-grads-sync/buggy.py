"""Hybrid parallel wrapper: gradient synchronisation with sequence parallelism in the TP group.

Reduced from hpcaitech/ColossalAI 1a3315e336 ([hotfix] Add layer norm gradients all-reduce for
sequence parallel, #4926).
"""
import torch.nn as nn
import torch.distributed as dist
from colossalai.shardformer.layer import Linear1D_Col, Linear1D_Row
from colossalai.shardformer.layer.utils import SeqParallelUtils


class Block(nn.Module):
    """Input and output: the part of the sequence which this tensor-parallel rank owns."""

    def __init__(self, hidden, tp_group):
        super().__init__()
        self.norm = nn.LayerNorm(hidden)  # on the sequence shard
        for p in self.norm.parameters():
            SeqParallelUtils.marked_as_sp_partial_derived_param(p)
        self.fc1 = Linear1D_Col(hidden, 4 * hidden, process_group=tp_group, seq_parallel=True, bias=False)
        self.fc2 = Linear1D_Row(4 * hidden, hidden, process_group=tp_group, seq_parallel=True, bias=False)

    def forward(self, x):
        return x + self.fc2(nn.functional.gelu(self.fc1(self.norm(x))))


class HybridParallelModule:
    def __init__(self, module, dp_group, tp_group):
        self.module, self.dp_group, self.tp_group = module, dp_group, tp_group

    def sync_dp_grads(self):
        for p in self.module.parameters():
            if p.grad is not None:
                dist.all_reduce(p.grad, group=self.dp_group)
                p.grad.div_(self.dp_group.size())

    def backward(self, loss):
        loss.backward()
        self.sync_dp_grads()  # BUG: nothing sums the norm gradients over the sequence shards
