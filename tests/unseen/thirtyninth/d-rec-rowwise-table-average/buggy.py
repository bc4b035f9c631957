"""Recommender with row-wise sharded embedding table and data-parallel dense part."""
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class RowWiseLookup(torch.autograd.Function):
    @staticmethod
    def forward(ctx, table, ids, row_offset):
        world = dist.get_world_size()
        all_ids = ids.new_empty(world * ids.numel())
        dist.all_gather_into_tensor(all_ids, ids)
        local = all_ids - row_offset
        mine = (local >= 0) & (local < table.shape[0])
        local = local.clamp(0, table.shape[0] - 1)
        rows = table[local] * mine.unsqueeze(1)
        out = rows.new_empty(ids.numel(), table.shape[1])
        dist.reduce_scatter_tensor(out, rows)
        ctx.save_for_backward(local, mine)
        ctx.table_shape, ctx.world = table.shape, world
        return out

    @staticmethod
    def backward(ctx, grad_out):
        local, mine = ctx.saved_tensors
        grads = grad_out.new_empty(ctx.world * grad_out.shape[0], grad_out.shape[1])
        dist.all_gather_into_tensor(grads, grad_out.contiguous())
        grads = grads * mine.unsqueeze(1)  # BUG
        grad_table = grads.new_zeros(ctx.table_shape).index_add_(0, local, grads)
        return grad_table, None, None


class RowWiseEmbedding(nn.Module):
    def __init__(self, num_embeddings, dim):
        super().__init__()
        rows = num_embeddings // dist.get_world_size()
        self.row_offset = dist.get_rank() * rows
        self.weight = nn.Parameter(torch.randn(rows, dim) * 0.01)

    def forward(self, ids):
        return RowWiseLookup.apply(self.weight, ids, self.row_offset)


class RankModel:
    def __init__(self, table, over, device):
        self.table = table.to(device)
        self.over = DistributedDataParallel(over.to(device), device_ids=[device])
        self.optimizer = torch.optim.SGD(
            [*self.table.parameters(), *self.over.parameters()], lr=0.1
        )

    def train_step(self, ids, dense, clicks):
        pooled = self.table(ids)
        logit = self.over(torch.cat([pooled, dense], dim=1)).squeeze(1)
        loss = nn.functional.binary_cross_entropy_with_logits(logit, clicks)
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        return loss.detach()
