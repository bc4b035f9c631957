# meta-pytorch/torchrec, issue 2362 - https://github.com/meta-pytorch/torchrec/issues/2362 (read)
# Row-wise sharded table with mean pooling: each rank divides by the number of ids of the bag it holds itself
# and the results are summed. A bag that is spread over several ranks comes out too large.
"""Evaluation lookup in a row-wise sharded embedding bag."""
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torchrec.modules.embedding_configs import PoolingType


class RwShardedEmbeddingBag(torch.nn.Module):
    def __init__(self, num_embeddings, embedding_dim, pooling: PoolingType, pg):
        super().__init__()
        self.pg, self.pooling = pg, pooling
        self.rows = num_embeddings // pg.size()
        self.offset = self.rows * pg.rank()
        self.weight = torch.nn.Parameter(torch.empty(self.rows, embedding_dim))

    @torch.no_grad()
    def forward(self, values, lengths):
        # values, lengths: bags of the global batch, ordered by the rank they belong to
        bags = torch.repeat_interleave(torch.arange(lengths.numel(), device=lengths.device), lengths)
        mine = (values >= self.offset) & (values < self.offset + self.rows)
        rows = F.embedding(values[mine] - self.offset, self.weight)
        pooled = rows.new_zeros(lengths.numel(), rows.size(1)).index_add(0, bags[mine], rows)
        if self.pooling == PoolingType.MEAN:
            local_lengths = torch.bincount(bags[mine], minlength=lengths.numel())
            pooled = pooled / local_lengths.clamp(min=1)[:, None]  # BUG: divides by the local share of the bag
        out = pooled.new_empty(lengths.numel() // self.pg.size(), pooled.size(1))
        dist.reduce_scatter_tensor(out, pooled, op=dist.ReduceOp.SUM, group=self.pg)
        return out
