"""Sharding strategies of reductions over DTensors."""
# thread: pytorch/pytorch#159856
from typing import cast

import torch
from torch.distributed.tensor._dtensor_spec import DTensorSpec
from torch.distributed.tensor._op_schema import OpSchema, OpSpec, OpStrategy, RuntimeSchemaInfo
from torch.distributed.tensor._ops._math_ops import (
    NormReduction,
    _infer_reduce_dims_map,
    _infer_reduction_dims,
    map_placements_after_reduction,
)
from torch.distributed.tensor._ops.utils import generate_redistribute_costs, register_op_strategy
from torch.distributed.tensor.placement_types import Replicate

aten = torch.ops.aten


def replicate_pending_sums(placements):
    return tuple(Replicate() if p.is_partial() else p for p in placements)


def common_reduction_strategy(
    input_strategy: OpStrategy, reduce_dims, keep_dim=False, reduction_linear=True, reduction_op="sum"
) -> OpStrategy:
    """reduction_linear: reduction(a + b) == reduction(a) + reduction(b)."""
    reduction_strategy = OpStrategy([])
    for op_spec in input_strategy.strategies:
        input_placements = op_spec.output_spec.placements
        if not reduction_linear:
            input_placements = replicate_pending_sums(input_placements)
        input_spec = DTensorSpec(
            mesh=input_strategy.mesh,
            placements=input_placements,
            tensor_meta=op_spec.output_spec.tensor_meta,
        )
        reduce_dims_map = _infer_reduce_dims_map(reduce_dims, input_spec.ndim, keep_dim)
        out_placements = map_placements_after_reduction(
            input_spec.placements, reduce_dims, reduce_dims_map, reduction_op
        )
        redistribute_cost = [generate_redistribute_costs(input_strategy, input_spec)]
        reduction_strategy.strategies.append(
            OpSpec(
                output_specs=DTensorSpec(mesh=input_strategy.mesh, placements=out_placements),
                input_specs=(input_spec,),
                redistribute_cost=redistribute_cost,
            )
        )
    return reduction_strategy


@register_op_strategy([aten.sum.default, aten.sum.dim_IntList], schema_info=RuntimeSchemaInfo(1))
def sum_strategy(op_schema: OpSchema) -> OpStrategy:
    input_strategy = cast(OpStrategy, op_schema.args_schema[0])
    dims = _infer_reduction_dims(None, input_strategy.ndim)
    reduce_dims = list(range(input_strategy.ndim)) if dims is None else dims
    return common_reduction_strategy(input_strategy, reduce_dims, reduction_linear=True)


@register_op_strategy([aten.linalg_vector_norm.default], schema_info=RuntimeSchemaInfo(1))
def vector_norm_strategy(op_schema: OpSchema) -> OpStrategy:
    args_schema = op_schema.args_schema
    input_strategy = cast(OpStrategy, args_schema[0])
    norm_type = args_schema[1] if len(args_schema) > 1 else 2
    dim = args_schema[2] if len(args_schema) > 2 else None
    keepdim = args_schema[3] if len(args_schema) > 3 else False
    dims = _infer_reduction_dims(dim, input_strategy.ndim)
    reduce_dims = list(range(input_strategy.ndim)) if dims is None else dims
    return common_reduction_strategy(
        input_strategy,
        reduce_dims,
        keep_dim=cast(bool, keepdim),
        reduction_linear=True,  # BUG: a norm of partial sums is not the partial sum of a norm
        reduction_op=NormReduction(norm_type),
    )
