"""Graph parallelism: the nodes of one batch are split over a graph-parallel group."""
import torch
import torch.distributed as dist
from fairchem.core.common import gp_utils
from torch.nn.parallel import DistributedDataParallel

# spmd: mesh world = dp, gp


class ReduceFromModelParallelRegion(torch.autograd.Function):
    @staticmethod
    def forward(ctx, input):
        out = input.clone()
        dist.all_reduce(out, group=gp_utils.get_gp_group())
        return out

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output * gp_utils.get_gp_world_size()


class EnergyHead(torch.nn.Module):
    def __init__(self, hidden):
        super().__init__()
        self.out = torch.nn.Linear(hidden, 1)

    # spmd: node_emb: {dp: V, gp: V} -> {dp: V, gp: I}
    def forward(self, node_emb):
        return ReduceFromModelParallelRegion.apply(self.out(node_emb).sum())


def wrap(head: EnergyHead, device):
    return DistributedDataParallel(head, device_ids=[device])  # all ranks: dp x gp


def train_step(model, node_emb, target, optimizer):
    loss = (model(node_emb) - target).abs().mean()
    loss.backward()
    optimizer.step()
