import copy
import torch
import torch.nn.functional as F
from megatron.core.tensor_parallel import mappings as M
from megatron.core.tensor_parallel.layers import ColumnParallelLinear, RowParallelLinear, VocabParallelEmbedding


class Draft(torch.nn.Module):
    """A layer that keeps an explicit flag; the output weight is lent from the embedding."""

    def __init__(self, config):
        super().__init__()
        self.config = config
        own = copy.copy(config)
        own.sequence_parallel = False
        self.emb = VocabParallelEmbedding(config.v, config.h, init_method=config.init, config=own)
        self.out = ColumnParallelLinear(config.h, config.v, config=own, init_method=config.init, gather_output=False, bias=False, skip_weight_param_allocation=True)

    def forward(self, ids):
        x = self.emb(ids)
        x = F.normalize(x, dim=-1)
        logits, _ = self.out(x, weight=self.emb.weight)
        return logits


class Draft2(torch.nn.Module):
    def __init__(self, config):
        super().__init__()
        self.emb = VocabParallelEmbedding(config.v, config.h, init_method=config.init, config=config, reduce_scatter_embeddings=True)
        self.emb.reduce_scatter_embeddings = False
        self.norm = torch.nn.LayerNorm(config.h)

    def forward(self, ids):
        return self.norm(self.emb(ids))
