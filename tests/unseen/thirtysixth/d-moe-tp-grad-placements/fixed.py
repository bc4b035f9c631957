# thread: https://github.com/pytorch/torchtitan/pull/1878
"""Tensor-parallel plan for the routed experts of a mixture-of-experts transformer."""
from dataclasses import dataclass

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_module, distribute_tensor
from torch.distributed.tensor.parallel import ParallelStyle, parallelize_module


@dataclass
class MoEArgs:
    dim: int = 2048
    hidden_dim: int = 5632
    num_experts: int = 16
    top_k: int = 2


class GroupedExperts(nn.Module):
    def __init__(self, args: MoEArgs):
        super().__init__()
        self.num_experts = args.num_experts
        self.w1 = nn.Parameter(torch.empty(args.num_experts, args.dim, args.hidden_dim))
        self.w2 = nn.Parameter(torch.empty(args.num_experts, args.hidden_dim, args.dim))
        self.w3 = nn.Parameter(torch.empty(args.num_experts, args.dim, args.hidden_dim))

    def init_weights(self, init_std: float):
        nn.init.trunc_normal_(self.w1, mean=0.0, std=0.02)
        nn.init.trunc_normal_(self.w2, mean=0.0, std=init_std)
        nn.init.trunc_normal_(self.w3, mean=0.0, std=init_std)

    def forward(self, x: torch.Tensor, num_tokens_per_expert: torch.Tensor) -> torch.Tensor:
        # plain tensors from here on, grouped_mm does not accept DTensor
        w1 = self.w1.to_local() if isinstance(self.w1, DTensor) else self.w1
        w2 = self.w2.to_local() if isinstance(self.w2, DTensor) else self.w2
        w3 = self.w3.to_local() if isinstance(self.w3, DTensor) else self.w3
        out_splits = []
        for idx, x_expert in enumerate(torch.split(x, num_tokens_per_expert.tolist(), dim=0)):
            h = F.silu(x_expert @ w1[idx]) * (x_expert @ w3[idx])
            out_splits.append(h @ w2[idx])
        return torch.cat(out_splits, dim=0)


class ExpertTensorParallel(ParallelStyle):
    """Column-wise w1 / w3, row-wise w2. Routed tokens are the same on every rank of the mesh."""

    def _prepare_input_fn(self, mod, inputs, device_mesh):
        routed_input, num_tokens_per_expert = inputs
        routed_input = DTensor.from_local(routed_input, device_mesh, (Replicate(),), run_check=False)
        routed_input = routed_input.to_local(grad_placements=(Partial(),))
        return routed_input, num_tokens_per_expert

    def _partition_fn(self, name: str, module: nn.Module, device_mesh: DeviceMesh):
        for param_name, dim in (("w1", 2), ("w2", 1), ("w3", 2)):
            param = getattr(module, param_name)
            module.register_parameter(
                param_name, nn.Parameter(distribute_tensor(param, device_mesh, [Shard(dim)]))
            )

    def _prepare_output_fn(self, mod, outputs, device_mesh):
        out = DTensor.from_local(outputs, device_mesh, (Partial(),), run_check=False)
        return out.redistribute(placements=(Replicate(),)).to_local()

    def _apply(self, module: nn.Module, device_mesh: DeviceMesh) -> nn.Module:
        return distribute_module(
            module, device_mesh, self._partition_fn, self._prepare_input_fn, self._prepare_output_fn
        )


class MoE(nn.Module):
    def __init__(self, args: MoEArgs):
        super().__init__()
        self.top_k = args.top_k
        self.num_experts = args.num_experts
        self.gate = nn.Linear(args.dim, args.num_experts, bias=False)
        self.experts = GroupedExperts(args)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        bs, slen, dim = x.shape
        x = x.view(-1, dim)
        scores = torch.softmax(self.gate(x).float(), dim=-1)
        top_scores, selected = torch.topk(scores, k=self.top_k, dim=-1)
        counts = torch.bincount(selected.view(-1), minlength=self.num_experts)
        order = torch.argsort(selected.view(-1), stable=True)
        token_idx = order // self.top_k
        routed_input = x[token_idx] * top_scores.view(-1)[order].unsqueeze(-1).to(x.dtype)
        routed_output = self.experts(routed_input, counts)
        out = torch.zeros_like(x).index_add(0, token_idx, routed_output)
        return out.view(bs, slen, dim)


def apply_moe_tp(model: nn.Module, tp_mesh: DeviceMesh):
    for block in model.layers.values():
        if getattr(block, "moe_enabled", False):
            parallelize_module(block.moe, tp_mesh, {"experts": ExpertTensorParallel()})
