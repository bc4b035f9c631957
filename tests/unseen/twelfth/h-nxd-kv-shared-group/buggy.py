"""Grouped-query projection with fewer KV heads than tensor-parallel ranks."""
import torch
import torch.distributed as dist
from megatron.core import parallel_state
from megatron.core.tensor_parallel import copy_to_tensor_model_parallel_region


def build_kv_shared_group(all_tp_ranks, num_kv_heads):
    """Neighbouring TP ranks hold the same KV head."""
    shared = None
    for tp_ranks in all_tp_ranks:
        rep = len(tp_ranks) // num_kv_heads
        for i in range(num_kv_heads):
            ranks = tp_ranks[i * rep:(i + 1) * rep]
            group = dist.new_group(ranks)
            if dist.get_rank() in ranks:
                shared = group
    return shared


class GQAQKVLinear(torch.nn.Module):
    def __init__(self, hidden, q_per_partition, head_dim):
        super().__init__()
        self.weight_q = torch.nn.Parameter(torch.empty(q_per_partition, hidden))
        self.weight_k = torch.nn.Parameter(torch.empty(head_dim, hidden))
        self.weight_v = torch.nn.Parameter(torch.empty(head_dim, hidden))
        for w in (self.weight_k, self.weight_v):
            setattr(w, "kv_shared", True)

    def forward(self, x):
        x = copy_to_tensor_model_parallel_region(x)
        return tuple(torch.nn.functional.linear(x, w) for w in (self.weight_q, self.weight_k, self.weight_v))


class KVGradReducer:
    def __init__(self, all_tp_ranks, num_kv_heads):
        self.tp_group = parallel_state.get_tensor_model_parallel_group()
        self.kv_shared_group = build_kv_shared_group(all_tp_ranks, num_kv_heads)

    def reduce(self, model):
        for p in model.parameters():
            if getattr(p, "kv_shared", False):
                dist.all_reduce(p.grad, group=self.tp_group)  # BUG: the other TP ranks hold other KV heads
            elif getattr(p, "sequence_parallel", False):
                dist.all_reduce(p.grad, group=self.tp_group)
