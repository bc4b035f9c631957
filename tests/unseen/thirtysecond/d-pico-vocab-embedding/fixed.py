"""Vocabulary-parallel embedding.
huggingface/picotron, tensor_parallel.py, from memory.
"""
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
import picotron.process_group_manager as pgm


class ReduceFromModelParallelRegion(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        if pgm.process_group_manager.tp_world_size == 1:
            return x
        x = x.clone()
        dist.all_reduce(x, op=dist.ReduceOp.SUM, group=pgm.process_group_manager.tp_group)
        return x

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output


class VocabParallelEmbedding(nn.Module):
    def __init__(self, num_embeddings: int, embedding_dim: int, padding_idx=None):
        super().__init__()
        tp_world_size = pgm.process_group_manager.tp_world_size
        tp_rank = pgm.process_group_manager.tp_rank
        self.padding_idx = padding_idx
        per_partition = num_embeddings // tp_world_size
        self.vocab_start_index = tp_rank * per_partition
        self.vocab_end_index = self.vocab_start_index + per_partition
        self.weight = nn.Parameter(torch.empty(per_partition, embedding_dim))
        nn.init.normal_(self.weight, mean=0.0, std=0.02)

    def forward(self, input):
        input_mask = (input < self.vocab_start_index) | (input >= self.vocab_end_index)
        masked_input = input.clone() - self.vocab_start_index
        masked_input[input_mask] = 0
        output_parallel = F.embedding(masked_input, self.weight)
        output_parallel = output_parallel.masked_fill(input_mask.unsqueeze(-1), 0.0)
        return ReduceFromModelParallelRegion.apply(output_parallel)
