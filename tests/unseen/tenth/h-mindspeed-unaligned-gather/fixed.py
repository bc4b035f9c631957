"""Sequence-parallel adaptors for layers whose sizes the tensor-parallel size does not divide.

Ascend/MindSpeed b7248954be9b, mindspeed/core/tensor_parallel/unaligned_layers/adaptor.py
"""
import torch
from megatron.core.parallel_state import get_tensor_model_parallel_group
from megatron.core.tensor_parallel.mappings import (
    gather_from_sequence_parallel_region as megatron_gather_from_sequence_parallel_region,
)
from mindspeed.core.tensor_parallel.unaligned_layers.unaligned_utils import (
    unaligned_gather_from_sequence_parallel_region,
    unaligned_reduce_scatter_to_sequence_parallel_region,
)


def reduce_scatter_to_sequence_parallel_region_adaptor(inputs):
    group = get_tensor_model_parallel_group()
    return unaligned_reduce_scatter_to_sequence_parallel_region(inputs, group)


def gather_from_sequence_parallel_region_adaptor(inputs, tensor_parallel_output_grad=True):
    group = get_tensor_model_parallel_group()
    world_size = torch.distributed.get_world_size(group)

    dim_size = torch.tensor(inputs.shape[0], dtype=torch.long, device=inputs.device)
    torch.distributed.all_reduce(dim_size, group=group)
    total_dim_size = dim_size.item()

    if total_dim_size % world_size != 0:
        return unaligned_gather_from_sequence_parallel_region(
            inputs, total_dim_size, group, tensor_parallel_output_grad
        )
    else:
        return megatron_gather_from_sequence_parallel_region(inputs, tensor_parallel_output_grad)
