"""Tensor-parallel plan of an attention with per-head norms."""
import torch
import torch.distributed as dist
from torch import nn
from transformers.integrations.tensor_parallel import ALL_PARALLEL_STYLES


class ReplicatedWithGradAllReduce:
    def prepare_module_tp(self, module, device_mesh):
        def reduce_grad(grad):
            dist.all_reduce(grad, group=device_mesh.get_group())
            return grad

        for p in module.parameters():
            p.register_hook(reduce_grad)


ALL_PARALLEL_STYLES["replicated_with_grad_allreduce"] = ReplicatedWithGradAllReduce()

base_model_tp_plan = {
    "q_proj": "colwise",
    "k_proj": "colwise",
    "q_norm": "replicated_with_grad_allreduce",
    "k_norm": "replicated_with_grad_allreduce",
}


class Qwen3Attention(nn.Module):
    def __init__(self, hidden_size, head_dim, heads):
        super().__init__()
        self.head_dim = head_dim
        self.q_proj = nn.Linear(hidden_size, heads * head_dim, bias=False)
        self.k_proj = nn.Linear(hidden_size, heads * head_dim, bias=False)
        self.q_norm, self.k_norm = nn.RMSNorm(head_dim), nn.RMSNorm(head_dim)

    def scores(self, x):
        q = self.q_norm(self.q_proj(x).unflatten(-1, (-1, self.head_dim)))  # this rank's heads
        k = self.k_norm(self.k_proj(x).unflatten(-1, (-1, self.head_dim)))
        return torch.einsum("bsnd,btnd->bnst", q, k)


def apply_tp(attn, device_mesh):
    for name, style in base_model_tp_plan.items():
        ALL_PARALLEL_STYLES[style].prepare_module_tp(attn.get_submodule(name), device_mesh)
