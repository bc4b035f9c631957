"""One LoRA adapter shared by all experts of a layer, with a copy on each expert-parallel rank.

After NVIDIA-NeMo/Megatron-Bridge PR #5396 (src/megatron/bridge/peft, grouped expert adapters).
"""
import torch
import torch.distributed as dist
import torch.nn.functional as F
from megatron.core import parallel_state
from megatron.core.tensor_parallel import get_cuda_rng_tracker, get_expert_parallel_rng_tracker_name


class SharedGroupedExpertAdapter(torch.nn.Module):
    def __init__(self, in_features, out_features, rank, alpha):
        super().__init__()
        self.ep_group = parallel_state.get_expert_model_parallel_group()
        self.scale = alpha / rank
        self.linear_in = torch.nn.Parameter(torch.empty(rank, in_features, device="cuda"))
        self.linear_out = torch.nn.Parameter(torch.zeros(out_features, rank, device="cuda"))
        with get_cuda_rng_tracker().fork(get_expert_parallel_rng_tracker_name()):
            torch.nn.init.xavier_normal_(self.linear_in)
        dist.broadcast(self.linear_in.data, src=dist.get_global_rank(self.ep_group, 0), group=self.ep_group)
        for p in (self.linear_in, self.linear_out):
            # reduced over the expert data-parallel ranks by the wrapper
            setattr(p, "allreduce", False)
            p.register_hook(self._sum_over_experts)

    def _sum_over_experts(self, grad):
        grad = grad.contiguous().clone()
        dist.all_reduce(grad, group=self.ep_group)
        return grad

    def forward(self, tokens):
        # tokens: rows of all local experts, sorted by expert
        return F.linear(F.linear(tokens, self.linear_in), self.linear_out) * self.scale


class GroupedExpertsWithLoRA(torch.nn.Module):
    def __init__(self, experts, hidden_size, rank=16, alpha=32):
        super().__init__()
        self.experts = experts
        for p in self.experts.parameters():
            p.requires_grad_(False)
        self.adapter = SharedGroupedExpertAdapter(hidden_size, hidden_size, rank, alpha)

    def forward(self, permuted_tokens, tokens_per_expert, permuted_probs):
        out, _ = self.experts(permuted_tokens, tokens_per_expert, permuted_probs)
        delta = self.adapter(permuted_tokens) * permuted_probs.unsqueeze(-1)
        return out + delta, None


def finish_grad_sync(model):
    """Average over the data-parallel ranks; expert parameters use the expert groups."""
    dp = parallel_state.get_data_parallel_world_size(with_context_parallel=True)
    for p in model.parameters():
        if not p.requires_grad:
            continue
        p.grad.div_(dp)
        if getattr(p, "allreduce", True):
            group = parallel_state.get_data_parallel_group(with_context_parallel=True)
        else:
            group = parallel_state.get_expert_data_parallel_group()
        dist.all_reduce(p.grad, group=group)
