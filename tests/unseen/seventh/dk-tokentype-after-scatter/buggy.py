"""BERT embedding under sequence parallelism."""
import torch
from megatron.core import tensor_parallel
from megatron.core.transformer.module import MegatronModule


class BertEmbedding(MegatronModule):
    def __init__(self, config, word_embeddings, max_positions, num_tokentypes):
        super().__init__(config=config)
        self.sequence_parallel = config.sequence_parallel
        self.word_embeddings = word_embeddings  # vocab parallel, output complete on every rank
        self.position_embeddings = torch.nn.Embedding(max_positions, config.hidden_size)
        self.tokentype_embeddings = torch.nn.Embedding(num_tokentypes, config.hidden_size)  # BUG
        self.layernorm = torch.nn.LayerNorm(config.hidden_size)
        for p in self.layernorm.parameters():
            setattr(p, "sequence_parallel", self.sequence_parallel)

    def forward(self, input_ids, position_ids, tokentype_ids, tp_rank, tp_size):
        x = self.word_embeddings(input_ids) + self.position_embeddings(position_ids)
        x = x.transpose(0, 1).contiguous()  # [s, b, h]
        types = tokentype_ids.transpose(0, 1)
        if self.sequence_parallel:
            x = tensor_parallel.scatter_to_sequence_parallel_region(x)
            types = types.chunk(tp_size, dim=0)[tp_rank]
        x = x + self.tokentype_embeddings(types)
        return self.layernorm(x)


def allreduce_sequence_parallel_grads(model, tp_group):
    for p in model.parameters():
        if getattr(p, "sequence_parallel", False):
            torch.distributed.all_reduce(p.main_grad, group=tp_group)
