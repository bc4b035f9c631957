"""Tensor-parallel plan of a Qwen3-style decoder."""
# Source: huggingface/transformers plan quoted in NVIDIA-NeMo/RL pull request 3788 (code from memory)
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F

BASE_MODEL_TP_PLAN = {
    "self_attn.q_proj": "colwise",
    "self_attn.k_proj": "colwise",
    "self_attn.v_proj": "colwise",
    "self_attn.q_norm": "replicated",  # BUG
    "self_attn.k_norm": "replicated",
    "self_attn.o_proj": "rowwise",
}


class _CopyIn(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        ctx.group = group
        return x

    @staticmethod
    def backward(ctx, grad):
        grad = grad.contiguous()
        dist.all_reduce(grad, group=ctx.group)
        return grad, None


class _ReduceOut(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        x = x.contiguous().clone()
        dist.all_reduce(x, group=group)
        return x

    @staticmethod
    def backward(ctx, grad):
        return grad, None


def apply_tp(layer, group, plan=BASE_MODEL_TP_PLAN):
    rank, world = dist.get_rank(group), dist.get_world_size(group)

    def sum_grad(grad):
        grad = grad.contiguous().clone()
        dist.all_reduce(grad, group=group)
        return grad

    for name, style in plan.items():
        module = layer.get_submodule(name)
        if style == "colwise":
            module.weight = nn.Parameter(module.weight.data.chunk(world, dim=0)[rank].clone())
            module.register_forward_pre_hook(lambda m, args: (_CopyIn.apply(args[0], group),))
        elif style == "rowwise":
            module.weight = nn.Parameter(module.weight.data.chunk(world, dim=1)[rank].clone())
            module.register_forward_hook(lambda m, args, out: _ReduceOut.apply(out, group))
        elif style == "replicated_with_grad_allreduce":
            for param in module.parameters():
                param.register_hook(sum_grad)


class Qwen3Attention(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.head_dim = config.head_dim
        width = config.num_heads * config.head_dim
        self.q_proj = nn.Linear(config.hidden_size, width, bias=False)
        self.k_proj = nn.Linear(config.hidden_size, width, bias=False)
        self.v_proj = nn.Linear(config.hidden_size, width, bias=False)
        self.o_proj = nn.Linear(width, config.hidden_size, bias=False)
        self.q_norm, self.k_norm = nn.RMSNorm(config.head_dim), nn.RMSNorm(config.head_dim)

    def forward(self, hidden_states):
        # hidden_states: [b, s, h], the same on all tensor-parallel ranks
        projections = (self.q_proj, self.k_proj, self.v_proj)
        q, k, v = (p(hidden_states).unflatten(-1, (-1, self.head_dim)).transpose(1, 2) for p in projections)
        out = F.scaled_dot_product_attention(self.q_norm(q), self.k_norm(k), v, is_causal=True)
        return self.o_proj(out.transpose(1, 2).flatten(-2))
