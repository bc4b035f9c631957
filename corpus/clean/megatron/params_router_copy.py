"""Experts cut over tensor-parallel ranks; the router is one computation on all ranks and its scores go through a copy."""

import torch
import torch.nn.functional as F
from megatron.core.parallel_state import get_tensor_model_parallel_world_size
from megatron.core.tensor_parallel import (
    copy_to_tensor_model_parallel_region,
    reduce_from_tensor_model_parallel_region,
)


class Router(torch.nn.Module):
    def __init__(self, config):
        super().__init__()
        self.topk = config.moe_router_topk
        # The same tokens and the same weight on every rank: the gradient is equal on all of them.
        self.weight = torch.nn.Parameter(torch.empty(config.num_moe_experts, config.hidden_size))
        torch.nn.init.normal_(self.weight, std=config.init_method_std)

    def forward(self, x):
        logits = F.linear(x.float(), self.weight.float())
        scores, indices = torch.topk(logits, self.topk, dim=-1)
        return torch.softmax(scores, dim=-1).type_as(x), indices


class SlicedExperts(torch.nn.Module):
    """Every rank has a slice of the inner dim of each expert."""

    def __init__(self, config):
        super().__init__()
        size = get_tensor_model_parallel_world_size()
        inner = config.moe_ffn_hidden_size // size
        self.num_experts = config.num_moe_experts
        self.w1 = torch.nn.Parameter(torch.empty(self.num_experts, inner, config.hidden_size))
        self.w2 = torch.nn.Parameter(torch.empty(self.num_experts, config.hidden_size, inner))
        for weight, dim in ((self.w1, 1), (self.w2, 2)):
            setattr(weight, "tensor_model_parallel", True)
            setattr(weight, "partition_dim", dim)

    def forward(self, x, scores, indices):
        out = torch.zeros_like(x)
        for expert in range(self.num_experts):
            token, slot = torch.where(indices == expert)
            hidden = F.silu(F.linear(x[token], self.w1[expert]))
            partial = F.linear(hidden, self.w2[expert])
            out = out.index_add(0, token, partial * scores[token, slot].unsqueeze(-1))
        return out


class MoELayer(torch.nn.Module):
    def __init__(self, config):
        super().__init__()
        self.router, self.experts = Router(config), SlicedExperts(config)

    def forward(self, hidden_states):
        shape = hidden_states.shape
        x = hidden_states.view(-1, shape[-1])
        scores, indices = self.router(x)
        scores = copy_to_tensor_model_parallel_region(scores)
        out = self.experts(copy_to_tensor_model_parallel_region(x), scores, indices)
        return reduce_from_tensor_model_parallel_region(out).view(shape)
