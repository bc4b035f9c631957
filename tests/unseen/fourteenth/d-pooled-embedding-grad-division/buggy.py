# Reduces torchrec's pooled all-to-all: a table lives on one rank and gets the summed gradient of the mean losses
# of all ranks, while DistributedDataParallel averages the dense part; the tables learn world-size times faster.
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class PooledAllToAll(torch.autograd.Function):
    """[global batch, dim] of my table  ->  [world, local batch, dim]: all tables, my samples."""

    @staticmethod
    def forward(ctx, x):
        out = torch.empty_like(x)
        dist.all_to_all_single(out, x.contiguous())
        return out.view(dist.get_world_size(), -1, x.shape[-1])

    @staticmethod
    def backward(ctx, grad):
        grad = grad.reshape(-1, grad.shape[-1]).contiguous()
        out = torch.empty_like(grad)
        dist.all_to_all_single(out, grad)
        return out  # BUG


class DLRM(nn.Module):
    def __init__(self, rows, dim, dense_in, device):
        super().__init__()
        world = dist.get_world_size()
        self.table = nn.EmbeddingBag(rows, dim, mode="sum", device=device)  # model parallel: one table per rank
        self.dense = DDP(nn.Sequential(nn.Linear(dense_in + world * dim, 256), nn.ReLU(),
                                       nn.Linear(256, 1)).to(device), device_ids=[device.index])

    def forward(self, dense, ids_of_my_table):
        pooled = PooledAllToAll.apply(self.table(ids_of_my_table))
        return self.dense(torch.cat([dense, pooled.transpose(0, 1).flatten(1)], dim=1)).squeeze(1)


def step(model, optimizer, dense, ids_of_my_table, labels):
    optimizer.zero_grad()
    loss = nn.functional.binary_cross_entropy_with_logits(model(dense, ids_of_my_table), labels)
    loss.backward()
    optimizer.step()
    return loss.detach()
