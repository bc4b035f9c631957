"""Tie replicated parameters across tensor-parallel ranks and sync their gradients."""
from dataclasses import dataclass
from enum import Enum, auto
from typing import Optional

import torch.distributed as dist
from nanotron.parallel.tensor_parallel.distributed_differentiable_primitives import (
    differentiable_all_reduce_sum,
    differentiable_reduce_scatter_sum,
)


class TensorParallelLinearMode(Enum):
    ALL_REDUCE = auto()
    REDUCE_SCATTER = auto()  # activations between linears are sequence shards


@dataclass
class TiedInfo:
    group: dist.ProcessGroup
    reduce_op: Optional[dist.ReduceOp]


def mark_unsharded_params_as_tied(model, parallel_config, tp_pg):
    reduce_op = dist.ReduceOp.SUM if parallel_config.tp_recompute_allgather else None  # BUG
    for name, param in model.named_parameters():
        if name.endswith(("input_layernorm.weight", "post_attention_layernorm.weight")):
            param.tied_info = TiedInfo(group=tp_pg, reduce_op=reduce_op)


def sync_tied_weights_gradients(model):
    for param in model.parameters():
        tied = getattr(param, "tied_info", None)
        if tied is not None and tied.reduce_op is not None:
            dist.all_reduce(param.grad, op=tied.reduce_op, group=tied.group)


def finish_embedding(partial, parallel_config, tp_pg):
    # partial: vocabulary-parallel lookup, [seq, batch, hidden]
    if parallel_config.tp_mode is TensorParallelLinearMode.REDUCE_SCATTER:
        return differentiable_reduce_scatter_sum(partial, group=tp_pg)
    return differentiable_all_reduce_sum(partial, group=tp_pg)
