"""Gather the fp32 master weights that the ZeRO optimizer shards, to save them on rank 0.

hpcaitech/Open-Sora bc4aa4f21794, opensora/utils/ckpt.py
"""
import torch
import torch.distributed as dist
from colossalai.zero.low_level import LowLevelZeroOptimizer
from opensora.acceleration.parallel_states import get_data_parallel_group


def remove_padding(tensor: torch.Tensor, original_shape) -> torch.Tensor:
    return tensor[: original_shape.numel()]


def build_optimizer(optimizer, dp_sp_group):
    """`dp_sp_group`: the data-parallel group merged with the sequence-parallel one."""
    return LowLevelZeroOptimizer(optimizer, dp_process_group=dp_sp_group, partition_grad=True)


def master_weights_gathering(model: torch.nn.Module, optimizer: LowLevelZeroOptimizer, pinned_state_dict: dict):
    """
    Gather the model parameters from multiple GPUs.

    Args:
        model (torch.nn.Module): The model to gather.
        optimizer (LowLevelZeroOptimizer): holds the parts of the master weights and the group of each parameter.
    """
    w2m = optimizer.get_working_to_master_map()
    for name, param in model.named_parameters():
        master_p = w2m[id(param)]
        zero_pg = get_data_parallel_group(get_mixed_dp_pg=True)  # BUG
        world_size = dist.get_world_size(zero_pg)
        all_params = [torch.empty_like(master_p) for _ in range(world_size)]
        dist.all_gather(all_params, master_p, group=zero_pg)
        if dist.get_rank() == 0:
            all_params = torch.cat(all_params)
            gathered_param = remove_padding(all_params, param.shape).view(param.shape)
            pinned_state_dict[name].copy_(gathered_param)

    dist.barrier()
