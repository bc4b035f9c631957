import torch
import torch.nn.functional as F
from megatron.core import parallel_state as ps
from megatron.core.tensor_parallel import (
    ColumnParallelLinear, RowParallelLinear, VocabParallelEmbedding, vocab_parallel_cross_entropy,
    gather_from_sequence_parallel_region, scatter_to_sequence_parallel_region, reduce_scatter_to_sequence_parallel_region,
    copy_to_tensor_model_parallel_region)


class Norm(torch.nn.LayerNorm):
    def __init__(self, size, config):
        super().__init__(size)
        for p in self.parameters():
            setattr(p, "sequence_parallel", config.sequence_parallel)


class ValueModel(torch.nn.Module):
    def __init__(self, config, trunk):
        super().__init__()
        self.config = config
        self.trunk = trunk
        self.norm = Norm(config.hidden_size, config)
        self.v_head = torch.nn.Linear(config.hidden_size, 1)
        for p in self.v_head.parameters():
            setattr(p, "sequence_parallel", config.sequence_parallel)

    def forward(self, ids, mask):
        h = self.norm(self.trunk(ids, mask))
        v = self.v_head(h)
        if self.config.sequence_parallel:
            v = gather_from_sequence_parallel_region(v, tensor_parallel_output_grad=False)
        return v.squeeze(-1).transpose(0, 1)


class Head(torch.nn.Module):
    def __init__(self, config):
        super().__init__()
        self.config = config
        self.norm = Norm(config.hidden_size, config)
        self.out = ColumnParallelLinear(config.hidden_size, config.vocab, config=config, init_method=config.init_method, bias=False, gather_output=False)

    def forward(self, h, labels, loss_mask):
        logits, _ = self.out(self.norm(h))
        loss = vocab_parallel_cross_entropy(logits.float(), labels.transpose(0, 1)).transpose(0, 1)
        return (loss * loss_mask).sum() / loss_mask.sum().clamp(min=1)


class Embedding(torch.nn.Module):
    def __init__(self, config):
        super().__init__()
        self.config = config
        self.word = VocabParallelEmbedding(config.vocab, config.hidden_size, init_method=config.init_method, config=config,
                                           reduce_scatter_embeddings=False)
        self.pos = torch.nn.Embedding(config.max_len, config.hidden_size)

    def forward(self, ids, pos):
        x = (self.word(ids) + self.pos(pos)).transpose(0, 1).contiguous()
        if self.config.sequence_parallel:
            x = scatter_to_sequence_parallel_region(x)
        return F.dropout(x, self.config.dropout, self.training)
