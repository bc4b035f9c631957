"""Graph parallelism: the nodes of one graph are split over the ranks of a group."""
import torch
import torch.distributed as dist
import torch.nn as nn

_GP_GROUP = None


def setup_gp(group):
    global _GP_GROUP
    _GP_GROUP = group


def _gather(x, dim):
    parts = [torch.empty_like(x) for _ in range(dist.get_world_size(_GP_GROUP))]
    dist.all_gather(parts, x.contiguous(), group=_GP_GROUP)
    return torch.cat(parts, dim=dim)


def _split(x, dim):
    return x.chunk(dist.get_world_size(_GP_GROUP), dim=dim)[dist.get_rank(_GP_GROUP)].contiguous()


class GatherFromModelParallelRegion(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, dim):
        ctx.dim = dim
        return _gather(x, dim)

    @staticmethod
    def backward(ctx, grad_output):
        return _split(grad_output, ctx.dim), None


class GatherFromModelParallelRegionSumGrad(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, dim):
        ctx.dim = dim
        return _gather(x, dim)

    @staticmethod
    def backward(ctx, grad_output):
        grad_output = grad_output.contiguous().clone()
        dist.all_reduce(grad_output, group=_GP_GROUP)
        return _split(grad_output, ctx.dim), None


class MessageBlock(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.edge_mlp = nn.Sequential(nn.Linear(2 * dim, dim), nn.SiLU(), nn.Linear(dim, dim))

    def forward(self, x, edge_index, node_offset):
        # x: features of the local nodes; edge_index: edges whose target is a local node, with global node ids
        source, target = edge_index
        x_full = GatherFromModelParallelRegionSumGrad.apply(x, 0)
        message = self.edge_mlp(torch.cat([x_full[source], x_full[target]], dim=1))
        return x.index_add(0, target - node_offset, message)


class ReadoutHead(nn.Module):
    def forward(self, energy_per_node):
        # the same sum is computed on every rank
        return GatherFromModelParallelRegion.apply(energy_per_node, 0).sum()
