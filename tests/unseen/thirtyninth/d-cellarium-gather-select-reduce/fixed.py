"""NT-Xent over the embeddings of all ranks."""
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class GatherLayer(torch.autograd.Function):
    """Gather tensors from all processes, with gradient."""

    @staticmethod
    def forward(ctx, x):
        x = x.contiguous()
        output = [torch.empty_like(x) for _ in range(dist.get_world_size())]
        dist.all_gather(output, x)
        return tuple(output)

    @staticmethod
    def backward(ctx, *grads):
        all_gradients = torch.stack(grads)
        dist.all_reduce(all_gradients, op=dist.ReduceOp.SUM)
        return all_gradients[dist.get_rank()]


def gather(x):
    if dist.is_initialized() and dist.get_world_size() > 1:
        return torch.cat(GatherLayer.apply(x), dim=0)
    return x


class NT_Xent(nn.Module):
    def __init__(self, temperature=0.5):
        super().__init__()
        self.temperature = temperature

    def forward(self, z_i, z_j):
        z_i, z_j = gather(z_i), gather(z_j)
        n = z_i.size(0)
        z = F.normalize(torch.cat([z_i, z_j]), dim=1)
        sim = z @ z.t() / self.temperature
        sim.fill_diagonal_(float("-inf"))
        target = torch.arange(2 * n, device=z.device).roll(n)
        return F.cross_entropy(sim, target)


class ContrastiveMLP(nn.Module):
    def __init__(self, in_dim, hidden, out_dim):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(in_dim, hidden), nn.ReLU(), nn.Linear(hidden, out_dim))

    def forward(self, x):
        return self.layers(x)


def train(model, loader, device):
    model = DistributedDataParallel(model.to(device), device_ids=[device])
    optimizer, criterion = torch.optim.Adam(model.parameters()), NT_Xent()
    for x_i, x_j in loader:
        z_i, z_j = model(torch.cat([x_i, x_j]).to(device)).chunk(2)
        loss = criterion(z_i, z_j)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
