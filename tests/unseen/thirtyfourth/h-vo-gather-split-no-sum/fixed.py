# ByteDance-Seed/VeOmni, pull request 1120 - https://github.com/ByteDance-Seed/VeOmni/pull/1120 (read: review excerpt)
# The gathered sequence feeds a loss that every sequence-parallel rank computes in full. A backward that only
# slices leaves parameter gradients sp_size times too small, because FSDP averages over the sp dimension too.
"""Gather features of all sequence shards before a replicated head."""
import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard


class _Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, dim, group):
        ctx.dim, ctx.group, ctx.n = dim, group, x.size(dim)
        parts = [torch.empty_like(x) for _ in range(dist.get_world_size(group))]
        dist.all_gather(parts, x.contiguous(), group=group)
        return torch.cat(parts, dim=dim)

    @staticmethod
    def backward(ctx, grad_output):
        rank = dist.get_rank(ctx.group)
        grad_output = grad_output.clone(memory_format=torch.contiguous_format)
        dist.all_reduce(grad_output, group=ctx.group)
        grad = grad_output.narrow(ctx.dim, rank * ctx.n, ctx.n)
        return grad.contiguous(), None, None


class VisionTower(torch.nn.Module):
    def __init__(self, blocks, sp_group):
        super().__init__()
        self.blocks, self.sp_group = torch.nn.ModuleList(blocks), sp_group

    def forward(self, x):
        # x: [batch, sequence / sp, hidden]; the blocks use Ulysses attention
        for block in self.blocks:
            x = block(x)
        return _Gather.apply(x, 1, self.sp_group)


def build(blocks, dp_shard_sp_mesh, sp_group):
    # the mesh covers data-parallel and sequence-parallel ranks, gradients are averaged over it
    tower = VisionTower(blocks, sp_group)
    for block in tower.blocks:
        fully_shard(block, mesh=dp_shard_sp_mesh)
    return fully_shard(tower, mesh=dp_shard_sp_mesh)


def loss_fn(tower, pixels, target):
    # pixels: local shard; target: whole sequence, equal on the ranks of one sp group
    return (tower(pixels) - target).pow(2).mean()
