"""Low-rank query projection of multi-latent attention and the trainer's gradient sync."""
import torch
import torch.distributed as dist
from torch import nn
from megatron.core.tensor_parallel import ColumnParallelLinear


class MLAQueryProjection(nn.Module):
    def __init__(self, config, hidden_size, q_lora_rank, num_heads, head_dim, init_method):
        super().__init__()
        self.q_a_proj = nn.Linear(hidden_size, q_lora_rank, bias=False)  # one copy per TP rank
        self.q_a_layernorm = nn.RMSNorm(q_lora_rank)
        self.q_b_proj = ColumnParallelLinear(
            q_lora_rank, num_heads * head_dim, config=config, init_method=init_method, bias=False
        )
        for p in (self.q_a_proj.weight, self.q_a_layernorm.weight):
            p.tp_replicated = True

    def forward(self, hidden_states):
        q, _ = self.q_b_proj(self.q_a_layernorm(self.q_a_proj(hidden_states)))
        return q


class TrainingManager:
    def __init__(self, model, config, tp_group, dp_group):
        self.model, self.sequence_parallel = model, config.sequence_parallel
        self.tp_group, self.dp_group = tp_group, dp_group

    def sync_gradients(self):
        for p in self.model.parameters():
            if self.sequence_parallel and getattr(p, "tp_replicated", False):
                dist.all_reduce(p.grad, group=self.tp_group)
            dist.all_reduce(p.grad, op=dist.ReduceOp.AVG, group=self.dp_group)
