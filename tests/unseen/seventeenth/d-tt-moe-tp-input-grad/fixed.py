# Source: pytorch/torchtitan commit 3ff755178 (PR #1878), torchtitan/distributed/expert_parallel.py
# The routed input is the same plain tensor on all TP ranks while the expert weights are sharded,
# so the gradient of the input is a partial sum on each rank. Nothing reduced it.
# Repair: from_local(Replicate).to_local(grad_placements=(Partial(),)) in the input function.
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.distributed.tensor import (
    DeviceMesh,
    distribute_module,
    distribute_tensor,
    DTensor,
    Partial,
    Replicate,
    Shard,
)
from torch.distributed.tensor.parallel import ParallelStyle


class GroupedExperts(nn.Module):
    def __init__(self, dim: int, hidden_dim: int, num_experts: int):
        super().__init__()
        self.w1 = nn.Parameter(torch.empty(num_experts, hidden_dim, dim))
        self.w2 = nn.Parameter(torch.empty(num_experts, dim, hidden_dim))

    def forward(self, x: torch.Tensor, num_tokens_per_expert: torch.Tensor):
        # the matmuls run on plain local tensors; the output is reduced by the caller
        w1, w2 = self.w1.to_local(), self.w2.to_local()
        offsets = torch.cumsum(num_tokens_per_expert, dim=0, dtype=torch.int32)
        h = F.silu(torch._grouped_mm(x.bfloat16(), w1.bfloat16().transpose(-2, -1), offs=offsets))
        return torch._grouped_mm(h, w2.bfloat16().transpose(-2, -1), offs=offsets).type_as(x)


class TensorParallel(ParallelStyle):
    def _prepare_input_fn(self, mod, inputs, device_mesh):
        routed_input, num_tokens_per_expert = inputs
        routed_input = DTensor.from_local(
            routed_input, device_mesh, (Replicate(),)
        ).to_local(grad_placements=(Partial(),))
        return routed_input, num_tokens_per_expert

    def _partition_fn(self, name, module, device_mesh):
        # w1 shape = (experts, out_dim, in_dim), column-wise
        module.register_parameter("w1", nn.Parameter(distribute_tensor(module.w1, device_mesh, [Shard(1)])))
        # w2 shape = (experts, in_dim, out_dim), row-wise
        module.register_parameter("w2", nn.Parameter(distribute_tensor(module.w2, device_mesh, [Shard(2)])))

    def _apply(self, module: nn.Module, device_mesh: DeviceMesh) -> nn.Module:
        return distribute_module(
            module,
            device_mesh,
            self._partition_fn,
            self._prepare_input_fn,
        )
