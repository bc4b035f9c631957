"""Tensor parallelism for the routed experts of a mixture-of-experts layer."""
import torch
import torch.nn as nn
from torch.distributed.tensor import DeviceMesh, DTensor, Partial, Replicate, Shard, distribute_module, distribute_tensor
from torch.distributed.tensor.parallel import ParallelStyle


class GroupedExperts(nn.Module):
    def __init__(self, dim, hidden_dim, num_experts):
        super().__init__()
        self.w1 = nn.Parameter(torch.empty(num_experts, hidden_dim, dim))
        self.w2 = nn.Parameter(torch.empty(num_experts, dim, hidden_dim))
        self.w3 = nn.Parameter(torch.empty(num_experts, hidden_dim, dim))

    def forward(self, x, num_tokens_per_expert):
        # the grouped matmuls run on plain tensors
        w1, w2, w3 = (w.to_local() if isinstance(w, DTensor) else w for w in (self.w1, self.w2, self.w3))
        offsets = torch.cumsum(num_tokens_per_expert, dim=0, dtype=torch.int32)
        h = torch.nn.functional.silu(torch._grouped_mm(x, w1.transpose(-2, -1), offs=offsets))
        h = h * torch._grouped_mm(x, w3.transpose(-2, -1), offs=offsets)
        return torch._grouped_mm(h, w2.transpose(-2, -1), offs=offsets)


class TensorParallel(ParallelStyle):
    def _prepare_input_fn(self, mod, inputs, device_mesh):
        # routed tokens, the same on all ranks of device_mesh
        routed_input, num_tokens_per_expert = inputs
        routed_input = DTensor.from_local(routed_input, device_mesh, (Replicate(),)).to_local(
            grad_placements=(Partial(),)
        )
        return routed_input, num_tokens_per_expert

    def _partition_fn(self, name, module, device_mesh):
        for n, dim in (("w1", 1), ("w2", 2), ("w3", 1)):  # column-, row-, column-wise
            param = nn.Parameter(distribute_tensor(getattr(module, n), device_mesh, [Shard(dim)]))
            module.register_parameter(n, param)

    def _prepare_output_fn(self, mod, outputs, device_mesh):
        return DTensor.from_local(outputs, device_mesh, (Partial(),)).redistribute(placements=(Replicate(),)).to_local()

    def _apply(self, module: nn.Module, device_mesh: DeviceMesh) -> nn.Module:
        return distribute_module(
            module, device_mesh, self._partition_fn, self._prepare_input_fn, self._prepare_output_fn
        )
