"""Graph parallelism: the atoms of one system are split over a few ranks.

facebookresearch/fairchem, pull request #1067 (fairchem/core/common/gp_utils.py).
"""
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


class GatherFromGPRegion(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, gp_group):
        ctx.gp_group, ctx.n = gp_group, x.size(0)
        parts = [torch.empty_like(x) for _ in range(dist.get_world_size(gp_group))]
        dist.all_gather(parts, x.contiguous(), group=gp_group)
        return torch.cat(parts, dim=0)

    @staticmethod
    def backward(ctx, grad_output):
        # every rank of the group computes the same loss, so grad_output is the same on all of them
        r = dist.get_rank(ctx.gp_group)
        grad = grad_output[r * ctx.n:(r + 1) * ctx.n]
        return grad * dist.get_world_size(ctx.gp_group), None


class EnergyModel(torch.nn.Module):
    def __init__(self, node_dim, hidden, gp_group):
        super().__init__()
        self.encoder = torch.nn.Sequential(
            torch.nn.Linear(node_dim, hidden), torch.nn.SiLU(), torch.nn.Linear(hidden, hidden)
        )
        self.readout = torch.nn.Linear(hidden, 1)
        self.gp_group = gp_group

    def forward(self, local_nodes):
        # local_nodes: the same number of atoms on each rank of gp_group
        h = self.encoder(local_nodes)
        h = GatherFromGPRegion.apply(h, self.gp_group)
        return self.readout(h).sum()


def build(node_dim, hidden, gp_group, local_rank):
    model = EnergyModel(node_dim, hidden, gp_group).cuda(local_rank)
    return DistributedDataParallel(model, device_ids=[local_rank])  # averages over dp x gp ranks


def train_step(model, local_nodes, target_energy, optimizer):
    # target_energy: one number per system, the same on all ranks of gp_group
    loss = (model(local_nodes) - target_energy).abs()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.detach()
