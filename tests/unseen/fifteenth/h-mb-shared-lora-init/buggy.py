# Reduced from Megatron Bridge peft (NVIDIA-NeMo/Megatron-Bridge pull request 5396, read).
# One LoRA adapter is shared by all grouped experts, so it is replicated over the expert-parallel
# ranks; its gradients are summed over them. Expert layers draw from the expert RNG tracker, whose
# seed depends on the expert-parallel rank.
# What happens: the ranks start with different adapters and equal updates keep them different.
import torch
import torch.nn as nn
from megatron.core import parallel_state
from megatron.core.tensor_parallel.random import get_cuda_rng_tracker, get_expert_parallel_rng_tracker_name


class SharedGroupedExpertAdapter(nn.Module):
    def __init__(self, in_features, out_features, dim, alpha, params_dtype=torch.bfloat16):
        super().__init__()
        self.scale = alpha / dim
        self.linear_in = nn.Linear(in_features, dim, bias=False, dtype=params_dtype, device="cuda")
        self.linear_out = nn.Linear(dim, out_features, bias=False, dtype=params_dtype, device="cuda")
        with get_cuda_rng_tracker().fork(get_expert_parallel_rng_tracker_name()):
            nn.init.xavier_normal_(self.linear_in.weight)  # BUG
        nn.init.zeros_(self.linear_out.weight)
        self._register_expert_grad_sync()

    def _register_expert_grad_sync(self):
        group = parallel_state.get_expert_model_parallel_group()

        def sum_over_expert_ranks(grad):
            grad = grad.contiguous().clone()
            torch.distributed.all_reduce(grad, group=group)
            return grad

        for param in self.parameters():
            param.register_hook(sum_over_expert_ranks)

    def forward(self, permuted_tokens):
        return self.linear_out(self.linear_in(permuted_tokens)) * self.scale
