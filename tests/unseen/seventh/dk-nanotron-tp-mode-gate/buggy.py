"""Gradients of the norm weights in a nanotron model.

ALL_REDUCE: activations between the linears are whole on every tensor-parallel rank.
REDUCE_SCATTER: they are split along the sequence.
"""
import torch.nn as nn
from nanotron import distributed as dist
from nanotron.nn.layer_norm import TritonRMSNorm
from nanotron.parallel import ParallelContext
from nanotron.parallel.tensor_parallel.enum import TensorParallelLinearMode


class DecoderLayer(nn.Module):
    def __init__(self, hidden_size, attn, mlp, eps):
        super().__init__()
        self.input_layernorm = TritonRMSNorm(hidden_size, eps=eps)
        self.attn = attn
        self.post_attention_layernorm = TritonRMSNorm(hidden_size, eps=eps)
        self.mlp = mlp

    def forward(self, hidden_states, sequence_mask):
        hidden_states = hidden_states + self.attn(self.input_layernorm(hidden_states), sequence_mask)
        return hidden_states + self.mlp(self.post_attention_layernorm(hidden_states))


def sync_norm_grads(model: nn.Module, parallel_context: ParallelContext, tp_mode: TensorParallelLinearMode):
    if parallel_context.tp_pg.size() == 1:
        return
    if tp_mode is TensorParallelLinearMode.ALL_REDUCE:  # BUG
        for name, param in model.named_parameters():
            if "layernorm" in name and param.grad is not None:
                dist.all_reduce(param.grad, op=dist.ReduceOp.SUM, group=parallel_context.tp_pg)
