"""Sequence-parallel norms: the parameters are marked and the finaliser sums the marked gradients over the tensor-parallel ranks."""

import torch
import torch.nn.functional as F
from megatron.core import parallel_state
from torch._utils import _flatten_dense_tensors, _unflatten_dense_tensors


class SequenceParallelNorm(torch.nn.Module):
    def __init__(self, config, hidden_size, eps=1e-5):
        super().__init__()
        self.config = config
        self.eps = eps
        self.hidden_size = (hidden_size,)
        self.zero_centered = config.layernorm_zero_centered_gamma
        self.weight = torch.nn.Parameter(torch.empty(hidden_size))
        self.bias = torch.nn.Parameter(torch.empty(hidden_size))
        self.reset_parameters()
        self.sequence_parallel = self.config.sequence_parallel
        setattr(self.weight, "sequence_parallel", self.sequence_parallel)
        setattr(self.bias, "sequence_parallel", self.sequence_parallel)

    def reset_parameters(self):
        if self.zero_centered:
            torch.nn.init.zeros_(self.weight)
        else:
            torch.nn.init.ones_(self.weight)
        torch.nn.init.zeros_(self.bias)

    def forward(self, x):
        weight = self.weight + 1 if self.zero_centered else self.weight
        return F.layer_norm(x, self.hidden_size, weight, self.bias, self.eps)


class Block(torch.nn.Module):
    def __init__(self, config, attention, mlp):
        super().__init__()
        self.input_layernorm = SequenceParallelNorm(config, config.hidden_size)
        self.attention = attention
        self.pre_mlp_layernorm = SequenceParallelNorm(config, config.hidden_size)
        self.mlp = mlp

    def forward(self, hidden_states, attention_mask):
        residual = hidden_states
        out, bias = self.attention(self.input_layernorm(hidden_states), attention_mask)
        if bias is not None:
            out = out + bias
        hidden_states = residual + out
        out, bias = self.mlp(self.pre_mlp_layernorm(hidden_states))
        if bias is not None:
            out = out + bias
        return hidden_states + out


def allreduce_layernorm_grads(model, config):
    if parallel_state.get_tensor_model_parallel_world_size() <= 1:
        return
    if not (config.sequence_parallel or config.qk_layernorm):
        return
    grads, params = [], []
    for model_chunk in model:
        for name, param in model_chunk.named_parameters():
            if not param.requires_grad:
                continue
            marked = getattr(param, "sequence_parallel", False)
            if marked or (config.qk_layernorm and ("q_layernorm" in name or "k_layernorm" in name)):
                params.append(param)
                grads.append(param.main_grad.data)
    if grads:
        coalesced = _flatten_dense_tensors(grads)
        torch.distributed.all_reduce(coalesced, group=parallel_state.get_tensor_model_parallel_group())
        for param, buf, synced in zip(params, grads, _unflatten_dense_tensors(coalesced, grads)):
            buf.copy_(synced)


def finalize_model_grads(model, config):
    for model_chunk in model:
        model_chunk.finish_grad_sync()
    allreduce_layernorm_grads(model, config)
