"""Vocabulary-parallel embedding over the two modes, with an out-of-place mask."""

import torch
from nanotron import distributed as dist
from nanotron.parallel.sharded_parameters import SplitConfig, mark_all_parameters_in_module_as_sharded
from nanotron.parallel.tensor_parallel.distributed_differentiable_primitives import (
    differentiable_all_reduce_sum,
    differentiable_reduce_scatter_sum,
)
from nanotron.parallel.tensor_parallel.enum import TensorParallelLinearMode
from torch import nn


class MaskedEmbedding(nn.Embedding):
    def __init__(self, num_embeddings, embedding_dim, pg, mode, contiguous_chunks=None):
        self.pg = pg
        self.rank, self.size = dist.get_rank(self.pg), self.pg.size()
        self.original_num_embeddings = num_embeddings
        assert num_embeddings % self.size == 0
        block_size = num_embeddings // self.size
        self.min_id = self.rank * block_size
        self.max_id = (self.rank + 1) * block_size
        super().__init__(block_size, embedding_dim)
        self.mode = mode
        mark_all_parameters_in_module_as_sharded(
            self, pg=self.pg, split_config=SplitConfig(split_dim=0, contiguous_chunks=contiguous_chunks)
        )

    def forward(self, input_ids):
        if self.pg.size() > 1:
            input_mask = torch.logical_or(self.min_id > input_ids, input_ids >= self.max_id)
            masked_input = input_ids.clone() - self.min_id
            masked_input[input_mask] = 0
        else:
            masked_input = input_ids
        out = super().forward(masked_input)
        if self.pg.size() > 1:
            out = out * (~input_mask[..., None])
        if self.mode is TensorParallelLinearMode.ALL_REDUCE:
            out = differentiable_all_reduce_sum(out, group=self.pg)
        elif self.mode is TensorParallelLinearMode.REDUCE_SCATTER:
            out = differentiable_reduce_scatter_sum(out, group=self.pg)
        else:
            raise ValueError(f"unexpected mode {self.mode}")
        return out


class Embedding(nn.Module):
    def __init__(self, config, tp_pg, tp_mode):
        super().__init__()
        self.token_embedding = MaskedEmbedding(config.vocab_size, config.hidden_size, tp_pg, tp_mode)
        self.pad_token_id = config.pad_token_id

    def forward(self, input_ids, input_mask):
        # [batch, seq] -> [seq, batch]: the first dim is the one that is scattered.
        input_ids = input_ids.transpose(0, 1).contiguous()
        return {"input_embeds": self.token_embedding(input_ids), "input_mask": input_mask}
