"""Tensor parallel style of grouped experts, plain tensors inside.
pytorch/torchtitan #1878, "fix MoE TP backward".
"""
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_module, distribute_tensor
from torch.distributed.tensor.parallel import ParallelStyle


class GroupedExperts(nn.Module):
    def __init__(self, dim, hidden_dim, num_experts):
        super().__init__()
        self.w1 = nn.Parameter(torch.empty(num_experts, hidden_dim, dim))
        self.w2 = nn.Parameter(torch.empty(num_experts, dim, hidden_dim))
        self.w3 = nn.Parameter(torch.empty(num_experts, hidden_dim, dim))

    def forward(self, x, num_tokens_per_expert):
        w1, w2, w3 = self.w1, self.w2, self.w3
        if isinstance(w1, DTensor):
            w1, w2, w3 = w1.to_local(), w2.to_local(), w3.to_local()
        offs = torch.cumsum(num_tokens_per_expert, dim=0, dtype=torch.int32)
        h = F.silu(torch._grouped_mm(x, w1.transpose(-2, -1), offs=offs))
        h = h * torch._grouped_mm(x, w3.transpose(-2, -1), offs=offs)
        return torch._grouped_mm(h, w2.transpose(-2, -1), offs=offs)


class TensorParallel(ParallelStyle):
    def _prepare_input_fn(self, mod, inputs, device_mesh):
        routed_input, num_tokens_per_expert = inputs
        routed_input = DTensor.from_local(routed_input, device_mesh, (Replicate(),), run_check=False)
        return routed_input.to_local(grad_placements=(Partial(),)), num_tokens_per_expert

    def _partition_fn(self, name, module, device_mesh):
        for pname, dim in (("w1", 1), ("w2", 2), ("w3", 1)):
            param = distribute_tensor(getattr(module, pname), device_mesh, [Shard(dim)])
            module.register_parameter(pname, nn.Parameter(param))

    def _prepare_output_fn(self, mod, outputs, device_mesh):
        outputs = DTensor.from_local(outputs, device_mesh, (Partial(),), run_check=False)
        return outputs.redistribute(placements=(Replicate(),)).to_local()

    def _apply(self, module, device_mesh):
        return distribute_module(
            module, device_mesh, self._partition_fn, self._prepare_input_fn, self._prepare_output_fn
        )
