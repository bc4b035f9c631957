"""Click-through model: row-wise sharded embedding tables and data-parallel dense layers."""
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP


class _ReduceScatterPooled(torch.autograd.Function):
    """[W * B, F, D] partial sums -> [B, F, D] for this rank's samples"""

    @staticmethod
    def forward(ctx, pooled, pg):
        ctx.pg = pg
        ctx.world_size = dist.get_world_size(pg)
        out = pooled.new_empty(pooled.size(0) // ctx.world_size, *pooled.shape[1:])
        dist.reduce_scatter_tensor(out, pooled.contiguous(), op=dist.ReduceOp.SUM, group=pg)
        return out

    @staticmethod
    def backward(ctx, grad_output):
        grad_output = grad_output.contiguous()
        grad = grad_output.new_empty(grad_output.size(0) * ctx.world_size, *grad_output.shape[1:])
        dist.all_gather_into_tensor(grad, grad_output, group=ctx.pg)
        return grad / ctx.world_size, None


class RowWiseShardedEmbeddingBag(nn.Module):
    """Sum pooling over fixed-length bags; every rank holds a range of the rows of each table."""

    def __init__(self, num_embeddings, embedding_dim, num_features, pg):
        super().__init__()
        self.pg = pg
        self.world_size, self.rank = dist.get_world_size(pg), dist.get_rank(pg)
        self.rows = (num_embeddings + self.world_size - 1) // self.world_size
        self.num_features = num_features
        self.weight = nn.Parameter(torch.empty(num_features, self.rows, embedding_dim))
        nn.init.uniform_(self.weight, -(num_embeddings ** -0.5), num_embeddings ** -0.5)

    def forward(self, ids):
        # ids: [B, F, L], the same B on every rank
        all_ids = ids.new_empty(ids.size(0) * self.world_size, *ids.shape[1:])
        dist.all_gather_into_tensor(all_ids, ids.contiguous(), group=self.pg)
        local = all_ids - self.rank * self.rows
        owned = (local >= 0) & (local < self.rows)
        local = local.clamp(0, self.rows - 1)
        feature = torch.arange(self.num_features, device=ids.device).view(1, -1, 1).expand_as(local)
        vectors = self.weight[feature, local] * owned.unsqueeze(-1)
        return _ReduceScatterPooled.apply(vectors.sum(dim=2), self.pg)


class DenseArch(nn.Module):
    def __init__(self, dense_in, num_features, dim):
        super().__init__()
        self.bottom = nn.Sequential(nn.Linear(dense_in, 128), nn.ReLU(), nn.Linear(128, dim), nn.ReLU())
        self.over = nn.Sequential(nn.Linear((num_features + 1) * dim, 256), nn.ReLU(), nn.Linear(256, 1))

    def forward(self, dense, pooled):
        x = torch.cat([self.bottom(dense).unsqueeze(1), pooled], dim=1)
        return self.over(x.flatten(1)).squeeze(-1)


class TrainPipeline:
    def __init__(self, cfg, device, pg):
        self.device = device
        self.sparse = RowWiseShardedEmbeddingBag(cfg.num_embeddings, cfg.dim, cfg.num_features, pg).to(device)
        self.dense = DDP(DenseArch(cfg.dense_in, cfg.num_features, cfg.dim).to(device), process_group=pg)
        self.sparse_optim = torch.optim.Adagrad(self.sparse.parameters(), lr=cfg.sparse_lr)
        self.dense_optim = torch.optim.Adam(self.dense.parameters(), lr=cfg.dense_lr)
        self.criterion = nn.BCEWithLogitsLoss()

    def progress(self, batch):
        dense, ids, labels = (t.to(self.device) for t in batch)
        self.sparse_optim.zero_grad()
        self.dense_optim.zero_grad()
        logits = self.dense(dense, self.sparse(ids))
        loss = self.criterion(logits, labels.float())
        loss.backward()
        self.sparse_optim.step()
        self.dense_optim.step()
        return loss.detach()
