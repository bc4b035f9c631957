"""Learnable attention sinks and the gradient norm.

Source: https://github.com/NVIDIA/Megatron-LM/issues/7452
"""
import torch
import torch.distributed as dist


class DotProductAttention(torch.nn.Module):
    def __init__(self, num_attention_heads, tp_size):
        super().__init__()
        heads = num_attention_heads // tp_size  # heads of this rank
        self.softmax_offset = torch.nn.Parameter(torch.zeros(heads))
        setattr(self.softmax_offset, "tensor_model_parallel", True)

    def forward(self, q, k, v):
        # (b, heads/tp, s, d)
        scores = q @ k.transpose(-1, -2) / q.size(-1) ** 0.5
        sink = self.softmax_offset.view(1, -1, 1, 1).expand(*scores.shape[:-1], 1)
        probs = torch.softmax(torch.cat([scores, sink], dim=-1), dim=-1)[..., :-1]
        return probs @ v


def param_is_not_tensor_parallel_duplicate(param, tp_group):
    return getattr(param, "tensor_model_parallel", False) or dist.get_rank(tp_group) == 0


@torch.no_grad()
def clip_grad_norm(params, max_norm, tp_group):
    params = [p for p in params if p.grad is not None]
    total = torch.zeros((), device=params[0].device)
    for p in params:
        if param_is_not_tensor_parallel_duplicate(p, tp_group):
            total += p.grad.float().pow(2).sum()
    dist.all_reduce(total, group=tp_group)
    norm = total.sqrt()
    coeff = (max_norm / (norm + 1e-6)).clamp(max=1.0)
    for p in params:
        p.grad.mul_(coeff)
    return norm
