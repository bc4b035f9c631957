"""Sequence-parallel transformer block and the bookkeeping for its norm weights."""
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F

from megatron import mpu
from megatron.mpu.layers import ColumnParallelLinear, RowParallelLinear


class RMSNorm(nn.Module):
    def __init__(self, dim, eps=1e-8):
        super().__init__()
        self.eps = eps
        self.scale = nn.Parameter(torch.ones(dim))

    def forward(self, x):
        dtype = x.dtype
        x = x.float()
        x = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps)
        return (x * self.scale).to(dtype)


class ParallelMLPBlock(nn.Module):
    """Residual MLP; between blocks every rank holds seq_len / mp_size positions."""

    def __init__(self, neox_args, init_method, output_layer_init_method):
        super().__init__()
        self.norm = RMSNorm(neox_args.hidden_size, eps=neox_args.rms_norm_epsilon)
        self.dense_h_to_4h = ColumnParallelLinear(
            neox_args=neox_args,
            input_size=neox_args.hidden_size,
            output_size=4 * neox_args.hidden_size,
            gather_output=False,
            init_method=init_method,
            bias=False,
            skip_bias_add=True,
            seq_dim=0,
        )
        self.dense_4h_to_h = RowParallelLinear(
            neox_args=neox_args,
            input_size=4 * neox_args.hidden_size,
            output_size=neox_args.hidden_size,
            input_is_parallel=True,
            init_method=output_layer_init_method,
            bias=False,
            skip_bias_add=True,
            parallel_output=False,
        )

    def forward(self, hidden_states):
        residual = hidden_states
        x = self.norm(hidden_states)
        x, _ = self.dense_h_to_4h(x)
        x, _ = self.dense_4h_to_h(F.gelu(x))
        return residual + x


def reduce_weight_grads_from_model_parallel_region(grad):
    """Combine one norm gradient over the model parallel ranks."""
    if mpu.get_model_parallel_world_size() == 1:
        return grad
    dtype = grad.dtype
    if mpu.get_fp32_allreduce():
        grad = grad.float()
    grad = grad.clone()
    dist.all_reduce(grad, op=dist.ReduceOp.AVG, group=mpu.get_model_parallel_group())  # BUG
    return grad.to(dtype)


def mark_norms_for_sequence_parallel_grad_sync(module, args):
    """Attach the gradient hook to every norm parameter of the pipeline stage."""
    if not args.sequence_parallel:
        return
    for module_ in module.modules():
        if "norm" not in type(module_).__name__.lower():
            continue
        for param in module_.parameters(recurse=False):
            if param.requires_grad:
                param.register_hook(reduce_weight_grads_from_model_parallel_region)


def setup_model_and_optimizer(neox_args, model, optimizer, lr_scheduler):
    import deepspeed

    model, optimizer, _, lr_scheduler = deepspeed.initialize(
        model=model,
        optimizer=optimizer,
        args=neox_args,
        lr_scheduler=lr_scheduler,
        dist_init_required=False,
        config_params=neox_args.deepspeed_config,
        mpu=mpu,
    )
    mark_norms_for_sequence_parallel_grad_sync(model.module, neox_args)
    return model, optimizer, lr_scheduler
