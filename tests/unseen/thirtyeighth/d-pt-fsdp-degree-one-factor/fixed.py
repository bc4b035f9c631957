"""Reduction of the gradients of one FSDP parameter group."""
# thread: pytorch/pytorch#167178
from typing import Optional

import torch
import torch.distributed as dist
from torch.distributed.distributed_c10d import ReduceOp


def _div_if_needed(tensor: torch.Tensor, div_factor: Optional[float]) -> None:
    if div_factor is not None and div_factor != 1:
        tensor.div_(div_factor)


def _get_gradient_divide_factors(group: dist.ProcessGroup, reduce_dtype: torch.dtype, factor: Optional[float]):
    """Returns (pre-divide, post-divide, op); bf16 and fp32 average, fp16 splits the division."""
    if factor is None:
        factor = float(group.size())
    if reduce_dtype in (torch.float32, torch.bfloat16):
        if factor == group.size():
            return None, None, ReduceOp.AVG
        return None, None, dist._make_nccl_premul_sum(1 / factor)
    pre = 1
    while factor % pre == 0 and factor / pre > pre:
        pre *= 2
    return pre, factor / pre, ReduceOp.SUM


@torch.no_grad()
def foreach_reduce(
    fsdp_params,
    unsharded_grads,
    reduce_scatter_group: dist.ProcessGroup,
    reduce_dtype: torch.dtype,
    device: torch.device,
    gradient_divide_factor: Optional[float],
):
    world_size = reduce_scatter_group.size()
    for i, (fsdp_param, grad) in enumerate(zip(fsdp_params, unsharded_grads)):
        if fsdp_param.fsdp_placement.dim != 0:
            chunks = torch.chunk(grad, world_size, dim=fsdp_param.fsdp_placement.dim)
            unsharded_grads[i] = torch.cat(chunks, dim=0)

    padded_sizes = [p.padded_unsharded_param_size(world_size) for p in fsdp_params]
    input_numel = sum(s.numel() for s in padded_sizes)
    reduce_scatter_input = torch.empty((input_numel,), dtype=reduce_dtype, device=device)
    torch._chunk_cat(unsharded_grads, dim=0, num_chunks=world_size, out=reduce_scatter_input.view(world_size, -1))

    reduce_output = reduce_scatter_input.new_empty((input_numel // world_size,))
    if world_size > 1:
        pre, post, op = _get_gradient_divide_factors(reduce_scatter_group, reduce_dtype, gradient_divide_factor)
        _div_if_needed(reduce_scatter_input, pre)
        dist.reduce_scatter_tensor(
            output=reduce_output, input=reduce_scatter_input, group=reduce_scatter_group, op=op
        )
        _div_if_needed(reduce_output, post)
    else:
        reduce_output.copy_(reduce_scatter_input)
        _div_if_needed(reduce_output, gradient_divide_factor)

    offset = 0
    for size, fsdp_param in zip(padded_sizes, fsdp_params):
        shard = torch.as_strided(reduce_output, fsdp_param.sharded_size, fsdp_param.contiguous_stride, offset)
        fsdp_param.accumulate_sharded_grad(shard.to(fsdp_param.orig_dtype))
        offset += size.numel() // world_size
