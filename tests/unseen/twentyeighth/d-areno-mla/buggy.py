"""Low-rank query projection of the attention layer and the gradient step of the manager."""
import torch
import torch.distributed as dist
import torch.nn as nn
from megatron.core import parallel_state as mpu
from megatron.core.tensor_parallel import ColumnParallelLinear, RowParallelLinear


class LatentQueryProjection(nn.Module):
    """hidden -> q_a (same on every rank) -> norm -> q_b (heads split over ranks)."""

    def __init__(self, config):
        super().__init__()
        self.q_a_proj = nn.Linear(config.hidden_size, config.q_lora_rank, bias=False)
        self.q_a_norm = nn.RMSNorm(config.q_lora_rank, eps=config.layernorm_epsilon)
        self.q_b_proj = ColumnParallelLinear(
            config.q_lora_rank,
            config.num_attention_heads * config.q_head_dim,
            config=config,
            init_method=config.init_method,
            bias=False,
            gather_output=False,
        )
        for param in (*self.q_a_proj.parameters(), *self.q_a_norm.parameters()):
            param.reduce_grad_over_tp = True  # BUG

    def forward(self, hidden_states):
        compressed = self.q_a_norm(self.q_a_proj(hidden_states))
        query, _ = self.q_b_proj(compressed)
        return query


class LatentAttention(nn.Module):
    def __init__(self, config, core_attention):
        super().__init__()
        self.head_dim = config.q_head_dim
        self.query = LatentQueryProjection(config)
        self.key_value = ColumnParallelLinear(
            config.hidden_size,
            2 * config.num_attention_heads * config.q_head_dim,
            config=config,
            init_method=config.init_method,
            bias=False,
            gather_output=False,
        )
        self.core_attention = core_attention
        self.output = RowParallelLinear(
            config.num_attention_heads * config.q_head_dim,
            config.hidden_size,
            config=config,
            init_method=config.output_layer_init_method,
            bias=False,
            input_is_parallel=True,
            skip_bias_add=False,
        )

    def forward(self, hidden_states, attention_mask):
        q = self.query(hidden_states)
        kv, _ = self.key_value(hidden_states)
        k, v = kv.chunk(2, dim=-1)
        split = lambda t: t.reshape(*t.shape[:-1], -1, self.head_dim)
        context = self.core_attention(split(q), split(k), split(v), attention_mask)
        out, _ = self.output(context)
        return out


class TrainingManager:
    def __init__(self, model, optimizer, max_grad_norm=1.0):
        self.model = model
        self.optimizer = optimizer
        self.max_grad_norm = max_grad_norm

    def _reduce_replicated_grads(self):
        if mpu.get_tensor_model_parallel_world_size() == 1:
            return
        grads = []
        for param in self.model.parameters():
            if getattr(param, "reduce_grad_over_tp", False) and param.grad is not None:
                grads.append(param.grad)
        if not grads:
            return
        flat = torch._utils._flatten_dense_tensors(grads)
        dist.all_reduce(flat, group=mpu.get_tensor_model_parallel_group())
        for grad, synced in zip(grads, torch._utils._unflatten_dense_tensors(flat, grads)):
            grad.copy_(synced)

    def _reduce_data_parallel_grads(self):
        group = mpu.get_data_parallel_group()
        size = dist.get_world_size(group)
        for param in self.model.parameters():
            if param.grad is not None:
                param.grad.div_(size)
                dist.all_reduce(param.grad, group=group)

    def step(self):
        self._reduce_data_parallel_grads()
        self._reduce_replicated_grads()
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
