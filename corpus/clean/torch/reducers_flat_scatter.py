"""A flat gradient goes to the ranks that own its parts; the norm is summed over parts, and the parts are gathered after the step."""

import torch
import torch.distributed as dist


def step(flat_param, flat_grad, optimizer, shard, group):
    """The gradient goes to the rank that owns the part; only that part is stepped; parts are gathered."""
    n = flat_param.numel() // dist.get_world_size(group)
    shard.grad = torch.empty_like(shard)
    dist.reduce_scatter_tensor(shard.grad, flat_grad, op=dist.ReduceOp.AVG, group=group)
    norm = shard.grad.norm() ** 2
    dist.all_reduce(norm, group=group)
    shard.grad.mul_((1.0 / (norm.sqrt() + 1e-6)).clamp(max=1.0))
    optimizer.step()
    dist.all_gather_into_tensor(flat_param, shard.data, group=group)
    return n
