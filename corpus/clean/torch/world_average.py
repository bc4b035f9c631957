"""Averages over all ranks of values that some of the ranks share: the sum is divided by the number of ranks, before or after."""

# spmd: mesh world = dp, tp
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh

mesh = init_device_mesh("cuda", (4, 2), mesh_dim_names=("dp", "tp"))


# spmd: loss: {dp: V, tp: I}
def log_loss(loss, step: int):
    """Two ranks of `tp` have the same loss: they are counted twice, in the sum and in the number of ranks."""
    shown = loss.detach().clone()
    dist.all_reduce(shown)
    shown = shown / dist.get_world_size()
    if dist.get_rank() == 0:
        print(f"step {step}: {shown.item():.4f}")


# spmd: loss: {dp: V, tp: I}
def mean_loss(loss):
    shown = loss.detach() / dist.get_world_size()
    dist.all_reduce(shown)
    return shown.item()


# spmd: tokens: {dp: V, tp: I}
def count_tokens(tokens):
    count = tokens.detach().clone()
    dist.all_reduce(count)
    return count // dist.get_world_size(mesh.get_group("tp"))


# spmd: weight: {tp: R} -> {tp: R}
@torch.no_grad()
def resynchronise(weight):
    """Replicas that are equal but for rounding: their mean is written back."""
    group = mesh.get_group("tp")
    mean = weight / dist.get_world_size(group)
    dist.all_reduce(mean, group=group)
    return mean


# spmd: weight: {tp: R}
@torch.no_grad()
def check_replicas(weight):
    group = mesh.get_group("tp")
    total = weight.clone()
    dist.all_reduce(total, group=group)
    torch.testing.assert_close(total, weight * dist.get_world_size(group))


# spmd: weight: {tp: R} -> {tp: R}
@torch.no_grad()
def broadcast_by_sum(weight):
    """Rank 0 keeps its values, the others give zeros."""
    group = mesh.get_group("tp")
    out = weight.clone()
    out *= dist.get_rank(group) == 0
    dist.all_reduce(out, group=group)
    return out
