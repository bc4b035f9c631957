"""Gather shards along the last dim."""
import torch
import torch.distributed as dist


def gather_along_last_dim(x, group):
    world = dist.get_world_size(group)
    if world == 1:
        return x
    parts = [torch.empty_like(x) for _ in range(world)]
    dist.all_gather(parts, x.contiguous(), group=group)
    return torch.cat(parts, dim=-1)


def weight_grad(grad_output, x_shard, group):
    x = gather_along_last_dim(x_shard, group)
    return grad_output.flatten(0, -2).t() @ x.flatten(0, -2)
