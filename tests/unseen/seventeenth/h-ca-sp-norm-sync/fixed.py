# Source: hpcaitech/ColossalAI commit 1a3315e33 (PR #4926), hybrid_parallel_plugin.py
# Under sequence parallelism a norm sees only this rank's part of the sequence, so its weight
# gradient is a partial sum over the tensor-parallel group. The pipeline step reduced gradients
# over data parallelism only.
# Repair: mark the norms (partial_derived) and sum their gradients over the tp group.
from typing import Callable, Iterator

import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed import ProcessGroup

from colossalai.interface import ModelWrapper, OptimizerWrapper
from colossalai.shardformer import ShardConfig
from colossalai.shardformer.layer._operation import (
    linear_gather_forward_reducescatter_backward,
    linear_reducescatter_forward_gather_backward,
)


class LlamaMLPBlock(nn.Module):
    def __init__(self, norm: nn.Module, up_shard, down_shard, tp_group: ProcessGroup):
        super().__init__()
        self.post_attention_layernorm = norm
        self.up_shard, self.down_shard = nn.Parameter(up_shard), nn.Parameter(down_shard)
        self.tp_group = tp_group
        for p in norm.parameters():
            setattr(p, "partial_derived", True)

    def forward(self, hidden_states):
        # hidden_states: [batch, seq / tp, hidden]
        x = self.post_attention_layernorm(hidden_states)
        x = linear_gather_forward_reducescatter_backward(x, self.up_shard, None, self.tp_group, True, 1, False)
        x = F.linear(F.silu(x), self.down_shard)
        return hidden_states + linear_reducescatter_forward_gather_backward(x, self.tp_group, 1)


class HybridParallelModule(ModelWrapper):
    def __init__(self, module: nn.Module, shard_config: ShardConfig, dp_group: ProcessGroup, tp_group: ProcessGroup):
        self.shard_config = shard_config
        self.dp_group = dp_group
        self.tp_group = tp_group
        super().__init__(module)

    def sync_dp_grads(self):
        if self.dp_group.size() == 1:
            return
        for p in self.module.parameters():
            if p.grad is not None:
                dist.all_reduce(p.grad, group=self.dp_group)
                p.grad.div_(self.dp_group.size())

    def sync_sp_grads(self):
        if self.tp_group.size() > 1 and self.shard_config.enable_sequence_parallelism:
            for p in self.module.parameters():
                if p.grad is not None and getattr(p, "partial_derived", False):
                    dist.all_reduce(p.grad, group=self.tp_group)


class HybridParallelPlugin:
    def execute_pipeline(
        self, data_iter: Iterator, model: HybridParallelModule, criterion: Callable, optimizer: OptimizerWrapper
    ):
        outputs = self.schedule.forward_backward_step(model, data_iter, criterion, optimizer, True, False)
        model.sync_sp_grads()
        model.sync_dp_grads()
        return outputs
