"""Tensor-parallel style of grouped experts that compute on local tensors."""
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.distributed.tensor import DTensor, Partial, Shard, distribute_module, distribute_tensor
from torch.distributed.tensor.parallel import ParallelStyle


class GroupedExperts(nn.Module):
    def __init__(self, num_experts, dim, hidden):
        super().__init__()
        self.w1 = nn.Parameter(torch.empty(num_experts, dim, hidden))
        self.w2 = nn.Parameter(torch.empty(num_experts, hidden, dim))

    def forward(self, x):
        # x: [experts, tokens, dim], plain tensor
        return torch.bmm(F.silu(torch.bmm(x, self.w1.to_local())), self.w2.to_local())


class TensorParallel(ParallelStyle):
    @staticmethod
    def _prepare_input_fn(mod, inputs, device_mesh):
        # routed input: DTensor, Replicate on tp
        return inputs[0].to_local(grad_placements=(Partial(),))

    @staticmethod
    def _partition_fn(name, mod, device_mesh):
        mod.w1 = nn.Parameter(distribute_tensor(mod.w1, device_mesh, [Shard(2)]))
        mod.w2 = nn.Parameter(distribute_tensor(mod.w2, device_mesh, [Shard(1)]))

    @staticmethod
    def _prepare_output_fn(mod, outputs, device_mesh):
        return DTensor.from_local(outputs, device_mesh, (Partial(),), run_check=False)

    def _apply(self, module, device_mesh):
        return distribute_module(
            module, device_mesh, self._partition_fn, self._prepare_input_fn, self._prepare_output_fn
        )
