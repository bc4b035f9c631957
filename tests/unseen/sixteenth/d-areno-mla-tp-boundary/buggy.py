# inclusionAI/AReno pull request 496
# Without sequence parallelism the up projections already all-reduce their input gradient, and the replicated
# down projections are then summed over TP again; the rotary rows of kv_a are summed only once.
"""MLA projections: replicated down projections followed by column-parallel up projections."""
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from megatron.core.tensor_parallel import (
    copy_to_tensor_model_parallel_region,
    gather_from_sequence_parallel_region,
)


class ColumnParallelLinear(nn.Module):
    def __init__(self, weight_shard, tp_group, sequence_parallel, reduce_input_grad):
        super().__init__()
        self.weight = nn.Parameter(weight_shard)  # [out / tp, in]
        self.tp_group, self.sequence_parallel = tp_group, sequence_parallel
        self.reduce_input_grad = reduce_input_grad

    def forward(self, x):
        if self.sequence_parallel:
            x = gather_from_sequence_parallel_region(x, group=self.tp_group)
        elif self.reduce_input_grad:
            x = copy_to_tensor_model_parallel_region(x, group=self.tp_group)
        return F.linear(x, self.weight)


class MLAProjection(nn.Module):
    def __init__(self, hidden, q_rank, kv_rank, rope_dim, q_b, kv_b, tp_group, sequence_parallel):
        super().__init__()
        self.tp_group, self.sequence_parallel = tp_group, sequence_parallel
        self.splits = [kv_rank, rope_dim]
        self.q_a_proj = nn.Linear(hidden, q_rank, bias=False)  # replicated over TP
        self.kv_a_proj = nn.Linear(hidden, kv_rank + rope_dim, bias=False)  # replicated over TP
        self.q_a_norm, self.kv_a_norm = nn.RMSNorm(q_rank), nn.RMSNorm(kv_rank)
        up_args = dict(tp_group=tp_group, sequence_parallel=sequence_parallel)
        up_args["reduce_input_grad"] = True  # BUG
        self.q_b_proj = ColumnParallelLinear(q_b, **up_args)  # heads sharded over TP
        self.kv_b_proj = ColumnParallelLinear(kv_b, **up_args)

    def forward(self, hidden_states):
        # hidden_states: [s, b, h], or [s / tp, b, h] under sequence parallelism
        q = self.q_b_proj(self.q_a_norm(self.q_a_proj(hidden_states)))
        compressed, k_pe = self.kv_a_proj(hidden_states).split(self.splits, dim=-1)
        kv = self.kv_b_proj(self.kv_a_norm(compressed))
        if self.sequence_parallel:
            k_pe = gather_from_sequence_parallel_region(k_pe, group=self.tp_group)
        return q, kv, k_pe  # k_pe is expanded over the heads of this rank


class TrainingManager:
    def reduce_replicated_grads(self, mla, tp_group):
        for module in (mla.q_a_proj, mla.kv_a_proj, mla.q_a_norm, mla.kv_a_norm):
            dist.all_reduce(module.weight.grad, group=tp_group)
