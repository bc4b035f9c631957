# thread: https://github.com/NVIDIA-NeMo/Megatron-Bridge/pull/5396
"""LoRA adapters for grouped experts; one adapter pair is shared by all experts of a layer."""
import math

import torch
import torch.distributed as dist
from megatron.core import parallel_state
from megatron.core.tensor_parallel import get_cuda_rng_tracker, get_expert_parallel_rng_tracker_name
from torch import nn


def init_method_kaiming_uniform(weight):
    return nn.init.kaiming_uniform_(weight, a=math.sqrt(5))


def init_method_const(value):
    def init_(weight):
        return nn.init.constant_(weight, value)

    return init_


class _SumGradOverExperts(torch.autograd.Function):
    """The adapter is used with the tokens of the experts of every expert-parallel rank."""

    @staticmethod
    def forward(ctx, weight, group):
        ctx.group = group
        return weight.view_as(weight)

    @staticmethod
    def backward(ctx, grad):
        grad = grad.contiguous()
        dist.all_reduce(grad, op=dist.ReduceOp.SUM, group=ctx.group)
        return grad, None


class SharedExpertAdapter(nn.Module):
    def __init__(self, in_features, out_features, dim=32, alpha=32, params_dtype=torch.bfloat16):
        super().__init__()
        self.scale = alpha / dim
        self.ep_group = parallel_state.get_expert_model_parallel_group()
        device = torch.cuda.current_device()
        self.linear_in = nn.Parameter(torch.empty(dim, in_features, dtype=params_dtype, device=device))
        self.linear_out = nn.Parameter(torch.empty(out_features, dim, dtype=params_dtype, device=device))
        self.reset_parameters()
        for weight in (self.linear_in, self.linear_out):
            weight.allreduce = False

    def reset_parameters(self):
        with get_cuda_rng_tracker().fork(get_expert_parallel_rng_tracker_name()):
            init_method_kaiming_uniform(self.linear_in)
            init_method_const(0.0)(self.linear_out)
        self._broadcast_from_first_expert_rank()

    @torch.no_grad()
    def _broadcast_from_first_expert_rank(self):
        src = dist.get_global_rank(self.ep_group, 0)
        for weight in (self.linear_in, self.linear_out):
            dist.broadcast(weight.data, src=src, group=self.ep_group)

    def forward(self, x):
        linear_in = _SumGradOverExperts.apply(self.linear_in, self.ep_group)
        linear_out = _SumGradOverExperts.apply(self.linear_out, self.ep_group)
        return nn.functional.linear(nn.functional.linear(x, linear_in), linear_out) * self.scale


class LoRAGroupedLinear(nn.Module):
    """Wraps a grouped expert projection: tokens are already sorted by expert."""

    def __init__(self, to_wrap, adapter):
        super().__init__()
        self.to_wrap, self.adapter = to_wrap, adapter
        for param in self.to_wrap.parameters():
            param.requires_grad = False

    def forward(self, x, tokens_per_expert):
        out, bias = self.to_wrap(x, tokens_per_expert)
        return out + self.adapter(x).to(out.dtype), bias


class LoRA:
    def __init__(self, target_modules=("linear_fc1", "linear_fc2"), dim=32, alpha=32):
        self.target_modules, self.dim, self.alpha = target_modules, dim, alpha

    def transform(self, module, name, config):
        if name not in self.target_modules:
            return module
        if name == "linear_fc1":
            sizes = config.hidden_size, 2 * config.moe_ffn_hidden_size
        else:
            sizes = config.moe_ffn_hidden_size, config.hidden_size
        return LoRAGroupedLinear(module, SharedExpertAdapter(*sizes, dim=self.dim, alpha=self.alpha))

    def __call__(self, model, config):
        for experts in [m for m in model.modules() if hasattr(m, "num_local_experts")]:
            for name, child in list(experts.named_children()):
                setattr(experts, name, self.transform(child, name, config))
        return model
