"""Norms of GPT-NeoX and their gradient hooks under sequence parallelism."""
import torch
import torch.distributed as dist
from torch import nn
from megatron import mpu


class RMSNorm(nn.Module):
    def __init__(self, dim, eps=1e-8):
        super().__init__()
        self.eps = eps
        self.scale = nn.Parameter(torch.ones(dim))

    def forward(self, x):
        return self.scale * x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps)


class ScaleNorm(nn.Module):
    def __init__(self, dim, eps=1e-5):
        super().__init__()
        self.eps = eps
        self.g = nn.Parameter(torch.ones(1))

    def forward(self, x):
        return x / torch.norm(x, dim=-1, keepdim=True).clamp(min=self.eps) * self.g


def get_norm(neox_args):
    if neox_args.norm == "rmsnorm":
        return RMSNorm, neox_args.rms_norm_epsilon
    elif neox_args.norm == "layernorm":
        return nn.LayerNorm, neox_args.layernorm_epsilon
    elif neox_args.norm == "scalenorm":
        return ScaleNorm, neox_args.scalenorm_epsilon
    raise ValueError(f"norm {neox_args.norm} not recognized")


def reduce_weight_grads_from_model_parallel_region(grad):
    if mpu.get_model_parallel_world_size() == 1:
        return grad
    grad = grad.contiguous().clone()
    dist.all_reduce(grad, group=mpu.get_model_parallel_group())
    return grad


def mark_norms_for_sequence_parallel_grad_sync(model, neox_args):
    if not neox_args.sequence_parallel:
        return
    for module in model.modules():
        if isinstance(module, (nn.LayerNorm, RMSNorm, ScaleNorm)):
            for param in module.parameters():
                param.register_hook(reduce_weight_grads_from_model_parallel_region)


class TransformerLayer(nn.Module):
    def __init__(self, neox_args, attention, mlp):
        super().__init__()
        norm, eps = get_norm(neox_args)
        self.input_layernorm = norm(neox_args.hidden_size, eps=eps)
        self.post_attention_layernorm = norm(neox_args.hidden_size, eps=eps)
        self.attention, self.mlp = attention, mlp

    def forward(self, x):
        # x: [s / mp, b, h] with sequence parallelism
        x = x + self.attention(self.input_layernorm(x))
        return x + self.mlp(self.post_attention_layernorm(x))
