# thread: https://github.com/modelscope/mcore-bridge/pull/173
"""LoRA on top of Megatron's parallel linear layers."""
import functools
import math

import torch
import torch.distributed as dist
from megatron.core import parallel_state
from megatron.core.tensor_parallel import ColumnParallelLinear, RowParallelLinear
from torch import nn


def kaiming_(weight):
    nn.init.kaiming_uniform_(weight, a=math.sqrt(5))


def local_linear(in_features, out_features, config):
    return nn.Linear(in_features, out_features, bias=False, dtype=config.params_dtype, device="cuda")


class LoraParallelLinear(nn.Module):
    def __init__(self, base_layer, in_features, out_features, rank, alpha, config):
        super().__init__()
        self.base_layer = base_layer
        self.scaling = alpha / rank
        for p in base_layer.parameters():
            p.requires_grad = False

        if isinstance(base_layer, RowParallelLinear):
            self.lora_a = RowParallelLinear(
                in_features,
                rank,
                config=config,
                init_method=functools.partial(nn.init.normal_, std=0.02),
                bias=False,
                input_is_parallel=True,
                skip_bias_add=True,
            )
            self.lora_b = local_linear(rank, out_features, config)
            self.lora_b.weight.sequence_parallel = config.sequence_parallel
            nn.init.zeros_(self.lora_b.weight)
        else:
            self.lora_a = local_linear(in_features, rank, config)
            self.lora_a.weight.sequence_parallel = config.sequence_parallel
            kaiming_(self.lora_a.weight)
            self.lora_b = ColumnParallelLinear(
                rank,
                out_features,
                config=config,
                init_method=nn.init.zeros_,
                bias=False,
                gather_output=False,
                skip_bias_add=True,
            )

    @staticmethod
    def _call(layer, x):
        out = layer(x)
        return out[0] if isinstance(out, tuple) else out

    def forward(self, x):
        result, bias = self.base_layer(x)
        update = self._call(self.lora_b, self._call(self.lora_a, x))
        return result + update * self.scaling, bias


def allreduce_sequence_parallel_grads(model, config):
    if not config.sequence_parallel:
        return
    group = parallel_state.get_tensor_model_parallel_group()
    if dist.get_world_size(group) == 1:
        return
    grads = [
        p.main_grad
        for p in model.parameters()
        if p.requires_grad and getattr(p, "sequence_parallel", False)
    ]
    if grads:
        coalesced = torch.cat([g.reshape(-1) for g in grads])
        dist.all_reduce(coalesced, group=group)
        for g, synced in zip(grads, coalesced.split([g.numel() for g in grads])):
            g.copy_(synced.view_as(g))


def finalize_model_grads(model_chunks, config):
    for chunk in model_chunks:
        chunk.finish_grad_sync()
    for chunk in model_chunks:
        allreduce_sequence_parallel_grads(chunk, config)
