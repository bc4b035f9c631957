# ColossalAI 1a3315e33 (PR #4926): under sequence parallelism the layer-norm gradients are partial on each
# tensor-parallel rank and HybridParallelPlugin only synchronizes gradients over data parallelism.
from contextlib import nullcontext

import torch
import torch.distributed as dist
from torch.distributed import ProcessGroup

from colossalai.interface import ModelWrapper
from colossalai.shardformer import ShardConfig
from colossalai.shardformer.layer.utils import SeqParallelUtils


class HybridParallelModule(ModelWrapper):
    def __init__(self, module, shard_config: ShardConfig, dp_group: ProcessGroup, tp_group: ProcessGroup):
        super().__init__(module)
        self.shard_config = shard_config
        self.dp_group = dp_group
        self.tp_group = tp_group
        self.require_grad_sync = True
        if shard_config.enable_sequence_parallelism:
            # The norms of a layer run on the sequence shard of this tensor-parallel rank.
            for layer in module.model.layers:
                SeqParallelUtils.marked_as_sp_partial_derived_param(layer.input_layernorm.weight)
                SeqParallelUtils.marked_as_sp_partial_derived_param(layer.post_attention_layernorm.weight)

    def sync_dp_grads(self):
        if self.dp_group.size() == 1:
            return
        for p in self.module.parameters():
            if p.grad is not None:
                dist.all_reduce(p.grad, group=self.dp_group)
                p.grad.div_(self.dp_group.size())

    def sync_sp_grads(self):
        if self.tp_group.size() == 1 or not self.shard_config.enable_sequence_parallelism:
            return
        for p in self.module.parameters():
            if p.grad is not None and SeqParallelUtils.is_sp_partial_derived_param(p):
                dist.all_reduce(p.grad, group=self.tp_group)


class HybridParallelPlugin:
    def execute_pipeline(self, data_iter, model: HybridParallelModule, criterion, optimizer):
        ctx = nullcontext() if model.require_grad_sync else model.no_sync()
        with ctx:
            outputs = self.schedule.forward_backward_step(model, data_iter, criterion, optimizer)
        if not model.require_grad_sync or not torch.is_grad_enabled():
            return outputs
        model.sync_shared_params()
        model.sync_dp_grads()  # BUG
        return outputs
