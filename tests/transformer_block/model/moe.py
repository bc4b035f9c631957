"""Mixture of experts: a replicated router, experts with their hidden features split over the ranks, a shared expert."""

import torch
import torch.nn.functional as F
from megatron.core import parallel_state
from megatron.core.tensor_parallel import set_tensor_model_parallel_attributes
from megatron.core.tensor_parallel.mappings import (
    copy_to_tensor_model_parallel_region,
    gather_from_sequence_parallel_region,
    reduce_from_tensor_model_parallel_region,
    reduce_scatter_to_sequence_parallel_region,
)
from torch.nn.parameter import Parameter

from .config import TransformerConfig
from .mlp import MLP


class TopKRouter(torch.nn.Module):
    """A weight of each expert for each token; zero for experts that were not chosen."""

    def __init__(self, config: TransformerConfig):
        super().__init__()
        self.topk = config.moe_router_topk
        self.weight = Parameter(torch.empty(config.num_moe_experts, config.hidden_size))
        torch.nn.init.normal_(self.weight, mean=0.0, std=config.init_method_std)
        setattr(self.weight, "sequence_parallel", config.sequence_parallel)

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        logits = F.linear(hidden_states, self.weight)
        scores, indices = torch.topk(logits, k=self.topk, dim=-1)
        scores = torch.softmax(scores, dim=-1)
        return torch.zeros_like(logits).scatter(-1, indices, scores)


class GroupedExperts(torch.nn.Module):
    """All experts at once. The result is this rank's term of a sum over the ranks: the caller reduces it."""

    def __init__(self, config: TransformerConfig):
        super().__init__()
        per_partition = config.moe_ffn_hidden_size // parallel_state.get_tensor_model_parallel_world_size()
        self.weight1 = Parameter(torch.empty(config.num_moe_experts, config.hidden_size, per_partition))
        self.weight2 = Parameter(torch.empty(config.num_moe_experts, per_partition, config.hidden_size))
        for weight in (self.weight1, self.weight2):
            torch.nn.init.normal_(weight, mean=0.0, std=config.init_method_std)
        set_tensor_model_parallel_attributes(tensor=self.weight1, is_parallel=True, dim=2, stride=1)
        set_tensor_model_parallel_attributes(tensor=self.weight2, is_parallel=True, dim=1, stride=1)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        intermediate = torch.einsum("sbh,ehf->sbef", tokens, self.weight1)
        intermediate = F.gelu(intermediate)
        return torch.einsum("sbef,efh->sbeh", intermediate, self.weight2)


class MoELayer(torch.nn.Module):
    def __init__(self, config: TransformerConfig):
        super().__init__()
        self.sequence_parallel = config.sequence_parallel
        self.tp_group = parallel_state.get_tensor_model_parallel_group()
        self.router = TopKRouter(config)
        self.experts = GroupedExperts(config)
        self.shared_experts = MLP(config)

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        probs = self.router(hidden_states)
        if self.sequence_parallel:
            tokens = gather_from_sequence_parallel_region(hidden_states, group=self.tp_group)
            gates = gather_from_sequence_parallel_region(probs, group=self.tp_group)
        else:
            tokens = copy_to_tensor_model_parallel_region(hidden_states, group=self.tp_group)
            gates = copy_to_tensor_model_parallel_region(probs, group=self.tp_group)
        expert_output = self.experts(tokens)
        combined = torch.einsum("sbeh,sbe->sbh", expert_output, gates)
        if self.sequence_parallel:
            routed = reduce_scatter_to_sequence_parallel_region(combined, group=self.tp_group)
        else:
            routed = reduce_from_tensor_model_parallel_region(combined, group=self.tp_group)
        shared = self.shared_experts(hidden_states)
        return routed + shared
