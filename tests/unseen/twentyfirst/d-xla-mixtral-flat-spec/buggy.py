"""Sharding constraint on the tokens of a MoE block."""
import torch
from torch_xla.distributed.spmd.xla_sharding import MarkShardingFunction


class MixtralMoeBlock(torch.nn.Module):
    def __init__(self, gate, experts, mesh, top_k):
        super().__init__()
        self.gate, self.experts = gate, torch.nn.ModuleList(experts)
        self.mesh, self.top_k = mesh, top_k  # axes "fsdp", "tensor"

    def forward(self, hidden_states):
        batch, seq, hidden = hidden_states.shape
        hidden_states = hidden_states.reshape(batch * seq, hidden)
        hidden_states = MarkShardingFunction.apply(hidden_states, self.mesh, ("fsdp", None, None))  # BUG: two dims now
        probs = torch.softmax(self.gate(hidden_states), dim=-1)
        top, index = probs.topk(self.top_k, dim=-1)
        weights = torch.zeros_like(probs).scatter(-1, index, top)
        out = torch.zeros_like(hidden_states)
        for i, expert in enumerate(self.experts):
            out = out + weights[:, i : i + 1] * expert(hidden_states)
        return out.reshape(batch, seq, hidden)
