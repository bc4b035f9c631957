# NVIDIA-NeMo/Megatron-Bridge pull request 5900
# The base projection is duplicated over TP and works on different sequence shards; the adapter around it is
# sharded over features, so its feature gather concatenates activations of different tokens.
"""LoRA around a linear layer that is duplicated over tensor-parallel ranks."""
import torch
from torch import nn
from megatron.core import parallel_state
from megatron.core.tensor_parallel import gather_from_tensor_model_parallel_region


class DuplicatedLinear(nn.Module):
    """Down projection of multi-latent attention: full weight, input is this rank's part of the sequence."""

    def __init__(self, in_features, out_features):
        super().__init__()
        self.in_features, self.out_features = in_features, out_features
        self.weight = nn.Parameter(torch.empty(out_features, in_features), requires_grad=False)

    def forward(self, x):
        return nn.functional.linear(x, self.weight)


class ParallelLinearAdapter(nn.Module):
    def __init__(self, base: DuplicatedLinear, dim, alpha):
        super().__init__()
        tp = parallel_state.get_tensor_model_parallel_world_size()
        self.scale = alpha / dim
        self.linear_in = nn.Linear(base.in_features, dim // tp, bias=False)
        self.linear_out = nn.Linear(dim, base.out_features // tp, bias=False)
        nn.init.zeros_(self.linear_out.weight)

    def forward(self, x):
        hidden = gather_from_tensor_model_parallel_region(self.linear_in(x))  # BUG
        out = gather_from_tensor_model_parallel_region(self.linear_out(hidden))
        return out * self.scale


class LoRALinear(nn.Module):
    def __init__(self, base, dim, alpha):
        super().__init__()
        self.base, self.adapter = base, ParallelLinearAdapter(base, dim, alpha)

    def forward(self, x):
        # x: [s / tp, b, h] under sequence parallelism
        return self.base(x) + self.adapter(x)


def allreduce_sequence_parallel_grads(model, tp_group):
    for param in model.parameters():
        if param.requires_grad and getattr(param, "sequence_parallel", False):
            torch.distributed.all_reduce(param.main_grad, group=tp_group)
