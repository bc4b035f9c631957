"""Experts that gather the tokens of every expert-parallel rank.

NVIDIA-NeMo/Automodel a65e5c2e73de, nemo_automodel/components/moe/experts.py
"""
import torch
import torch.distributed as dist
import torch.distributed.nn.functional as dist_F
from torch import nn


class _AllGatherConcatFn(torch.autograd.Function):
    @staticmethod
    def forward(ctx, local_tensor, group):
        gathered = [torch.empty_like(local_tensor) for _ in range(dist.get_world_size(group))]
        dist.all_gather(gathered, local_tensor.contiguous(), group=group)
        ctx.group, ctx.rank, ctx.n = group, dist.get_rank(group), local_tensor.size(0)
        return torch.cat(gathered, dim=0)

    @staticmethod
    def backward(ctx, grad_output):
        grad_full = grad_output.contiguous().clone()
        dist.all_reduce(grad_full, op=dist.ReduceOp.SUM, group=ctx.group)
        return grad_full.narrow(0, ctx.rank * ctx.n, ctx.n).contiguous(), None


class GroupedExperts(nn.Module):
    def __init__(self, local_experts, n_routed_experts, ep_mesh):
        super().__init__()
        self.experts = nn.ModuleList(local_experts)
        self.n_routed_experts = n_routed_experts
        self.ep_mesh = ep_mesh

    def forward(self, x, weights, indices):
        """x: local tokens; weights, indices: the router's softmax scores and choices for them."""
        ep_size, ep_rank = self.ep_mesh.size(), self.ep_mesh.get_local_rank()
        ep_group = self.ep_mesh.get_group()
        local_num_tokens = x.size(0)

        def _all_gather_dim0(local_tensor, *, differentiable):
            if differentiable:
                return _AllGatherConcatFn.apply(local_tensor, ep_group)
            gathered = [torch.empty_like(local_tensor) for _ in range(ep_size)]
            dist.all_gather(gathered, local_tensor.contiguous(), group=ep_group)
            return torch.cat(gathered, dim=0)

        x = _all_gather_dim0(x, differentiable=True)
        weights = _all_gather_dim0(weights.float(), differentiable=False)  # BUG
        indices = _all_gather_dim0(indices, differentiable=False)

        n_local_experts = self.n_routed_experts // ep_size
        y = torch.zeros_like(x)
        for i, expert in enumerate(self.experts):
            idx, top = torch.where(indices == ep_rank * n_local_experts + i)
            y = y.index_add(0, idx, (expert(x[idx]) * weights[idx, top, None]).to(x.dtype))
        y = dist_F.all_reduce(y, group=ep_group)
        return y.narrow(0, ep_rank * local_num_tokens, local_num_tokens)
