# hpcaitech/ColossalAI pull requests 4926 and 4927 (commit 1a3315e33)
"""Hybrid parallel plugin: tensor parallel with sequence parallelism, plus data parallel."""
import torch
import torch.distributed as dist
from torch import nn
from torch._utils import _flatten_dense_tensors, _unflatten_dense_tensors


class SeqParallelUtils:
    @staticmethod
    def marked_as_sp_partial_derived_param(param):
        setattr(param, "partial_derived", True)

    @staticmethod
    def is_sp_partial_derived_param(param):
        return getattr(param, "partial_derived", False)

    @staticmethod
    def allreduce_partial_data_grad(tp_group, model):
        grads = [
            p.grad.data
            for p in model.parameters()
            if p.grad is not None and SeqParallelUtils.is_sp_partial_derived_param(p)
        ]
        coalesced = _flatten_dense_tensors(grads)
        dist.all_reduce(coalesced, op=dist.ReduceOp.SUM, group=tp_group)
        for buf, synced in zip(grads, _unflatten_dense_tensors(coalesced, grads)):
            buf.copy_(synced)


class SeqParallelLayerNorm(nn.LayerNorm):
    """Input: [b, s / tp, h]."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        for param in self.parameters():
            SeqParallelUtils.marked_as_sp_partial_derived_param(param)


class HybridParallelModule(nn.Module):
    def __init__(self, module, dp_group, tp_group, enable_sequence_parallelism):
        super().__init__()
        self.module, self.dp_group, self.tp_group = module, dp_group, tp_group
        self.enable_sequence_parallelism = enable_sequence_parallelism

    def sync_dp_grads(self):
        for p in self.module.parameters():
            if p.grad is not None:
                dist.all_reduce(p.grad, group=self.dp_group)
                p.grad.div_(self.dp_group.size())

    def sync_sp_grads(self):
        if self.tp_group.size() > 1 and self.enable_sequence_parallelism:
            SeqParallelUtils.allreduce_partial_data_grad(tp_group=self.tp_group, model=self.module)

    def forward(self, *args, **kwargs):
        return self.module(*args, **kwargs)


def train_step(model: HybridParallelModule, optimizer, micro_batches, criterion):
    optimizer.zero_grad()
    for batch in micro_batches:
        loss = criterion(model(**batch)) / len(micro_batches)
        loss.backward()
    model.sync_sp_grads()
    model.sync_dp_grads()
    optimizer.step()
