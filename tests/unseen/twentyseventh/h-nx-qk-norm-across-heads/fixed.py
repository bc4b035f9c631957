"""RMS norm of queries over all heads, heads sharded over model-parallel ranks."""
import torch
import torch.distributed.nn.functional
from torch import nn
from megatron import mpu


class QKNormAcrossHeads(nn.Module):
    def __init__(self, neox_args, eps=1e-6):
        super().__init__()
        world_size = mpu.get_model_parallel_world_size()
        self.hidden_size = neox_args.hidden_size
        self.scale = nn.Parameter(torch.ones(neox_args.hidden_size // world_size))
        self.scale.model_parallel = True
        self.eps = eps

    def forward(self, q):
        # q: [sq, b, heads / mp, head_dim], normalised over the whole hidden size
        heads, dim = q.shape[-2:]
        x = q.flatten(-2).float()
        sum_sq = x.pow(2).sum(-1, keepdim=True)
        group = mpu.get_model_parallel_group()
        variance = torch.distributed.nn.functional.all_reduce(sum_sq, group=group) / self.hidden_size
        x = x * torch.rsqrt(variance + self.eps)
        return (x.type_as(q) * self.scale).unflatten(-1, (heads, dim))


class ParallelSelfAttention(nn.Module):
    def __init__(self, neox_args, query_key_value, dense, core_attention):
        super().__init__()
        self.query_key_value, self.dense, self.core = query_key_value, dense, core_attention
        self.q_norm, self.k_norm = QKNormAcrossHeads(neox_args), QKNormAcrossHeads(neox_args)

    def forward(self, hidden_states):
        mixed, _ = self.query_key_value(hidden_states)
        q, k, v = mixed.unflatten(-1, (-1, 3, self.core.head_dim)).unbind(-2)
        return self.dense(self.core(self.q_norm(q), self.k_norm(k), v))[0]
