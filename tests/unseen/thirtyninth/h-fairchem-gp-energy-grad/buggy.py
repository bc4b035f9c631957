"""Graph-parallel energy model: the nodes of one graph are split over the gp ranks."""
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class GatherFromGraphParallel(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        ctx.group = group
        out = x.new_empty(x.shape[0] * group.size(), *x.shape[1:])
        dist.all_gather_into_tensor(out, x.contiguous(), group=group)
        return out

    @staticmethod
    def backward(ctx, grad):
        out = grad.new_empty(grad.shape[0] // ctx.group.size(), *grad.shape[1:])
        dist.reduce_scatter_tensor(out, grad.contiguous(), group=ctx.group)
        return out, None


class ReduceFromGraphParallel(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        x = x.clone()
        dist.all_reduce(x, group=group)
        return x

    @staticmethod
    def backward(ctx, grad):
        return grad, None  # BUG


class EnergyModel(nn.Module):
    def __init__(self, num_elements, dim, num_layers, gp_group):
        super().__init__()
        self.gp_group = gp_group
        self.embedding = nn.Embedding(num_elements, dim)
        self.message = nn.ModuleList(nn.Linear(2 * dim, dim) for _ in range(num_layers))
        self.energy_head = nn.Linear(dim, 1)

    def forward(self, z_local, edge_src, edge_dst_local, graph_of_node, num_graphs):
        # edges end in this rank's nodes; edge_src counts over all nodes of the batch
        h = self.embedding(z_local)
        for layer in self.message:
            full = GatherFromGraphParallel.apply(h, self.gp_group)
            msg = layer(torch.cat([full[edge_src], h[edge_dst_local]], dim=-1))
            h = h + torch.zeros_like(h).index_add(0, edge_dst_local, torch.tanh(msg))
        node_energy = self.energy_head(h).squeeze(-1)
        energy = node_energy.new_zeros(num_graphs).index_add(0, graph_of_node, node_energy)
        return ReduceFromGraphParallel.apply(energy, self.gp_group)


def build(model, device):
    return DistributedDataParallel(model, device_ids=[device])  # data and gp ranks together


def train_step(ddp, optimizer, batch):
    energy = ddp(**batch["graph"])
    loss = nn.functional.l1_loss(energy, batch["energy"])
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    return loss.detach()
