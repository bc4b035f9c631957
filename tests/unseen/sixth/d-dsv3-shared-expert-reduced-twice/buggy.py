"""MoE block with a tensor-parallel shared expert."""
import torch
import torch.nn.functional as F
import torch.distributed as dist


class SharedExpert(torch.nn.Module):
    def __init__(self, up_shard, down_shard, tp_group, reduce_results=True):
        super().__init__()
        self.up = torch.nn.Parameter(up_shard)  # [i/tp, h]
        self.down = torch.nn.Parameter(down_shard)  # [h, i/tp]
        self.tp_group, self.reduce_results = tp_group, reduce_results

    def forward(self, x):
        out = F.linear(F.silu(F.linear(x, self.up)), self.down)
        if self.reduce_results:
            dist.all_reduce(out, group=self.tp_group)
        return out


class DeepseekV2MoE(torch.nn.Module):
    def __init__(self, experts, gate, up_shard, down_shard, tp_group):
        super().__init__()
        self.experts, self.gate, self.tp_group = experts, gate, tp_group
        self.shared_experts = SharedExpert(up_shard, down_shard, tp_group)

    def forward(self, hidden_states):
        # hidden_states is the same on every TP rank
        shared_output = self.shared_experts(hidden_states)
        logits = self.gate(hidden_states)
        out = self.experts(hidden_states, logits)  # partial over tp_group
        out = out + shared_output
        dist.all_reduce(out, group=self.tp_group)  # BUG: the shared expert is reduced already
        return out
