"""Finalise model gradients: layer norms are all-reduced over TP when their input differs by rank."""
# Megatron-LM: q_layernorm / k_layernorm act on TP-local heads, so their gradient is a term of a sum even without sequence
# parallelism (fix: `config.sequence_parallel or config.qk_layernorm`); NVIDIA-NeMo/RL issue 3716 is the same miss.
import torch
from torch._utils import _flatten_dense_tensors, _unflatten_dense_tensors
from megatron.core import parallel_state
from megatron.core.tensor_parallel import ColumnParallelLinear, RowParallelLinear


class SelfAttention(torch.nn.Module):
    def __init__(self, config, core_attention, norm_cls):
        super().__init__()
        self.config = config
        world = parallel_state.get_tensor_model_parallel_world_size()
        self.heads = config.num_attention_heads // world
        self.head_dim = config.kv_channels
        self.linear_qkv = ColumnParallelLinear(
            config.hidden_size, 3 * config.num_attention_heads * config.kv_channels, config=config,
            init_method=config.init_method, gather_output=False,
        )
        self.q_layernorm = torch.nn.LayerNorm(self.head_dim)
        self.k_layernorm = torch.nn.LayerNorm(self.head_dim)
        self.core_attention = core_attention
        self.linear_proj = RowParallelLinear(
            config.num_attention_heads * config.kv_channels, config.hidden_size, config=config,
            init_method=config.output_layer_init_method, bias=False, input_is_parallel=True, skip_bias_add=False,
        )

    def forward(self, hidden_states):
        qkv, _ = self.linear_qkv(hidden_states)
        s, b = qkv.shape[:2]
        q, k, v = qkv.view(s, b, self.heads, 3 * self.head_dim).chunk(3, dim=-1)
        q = self.q_layernorm(q)
        k = self.k_layernorm(k)
        out = self.core_attention(q, k, v)
        return self.linear_proj(out.reshape(s, b, -1))[0]


def _allreduce_layernorm_grads(model, config):
    """All-reduce layernorm grads (for sequence parallelism)."""
    if parallel_state.get_tensor_model_parallel_world_size() > 1 and config.sequence_parallel:  # BUG: q/k layernorm need it always
        grads = []
        for model_chunk in model:
            for name, param in model_chunk.named_parameters():
                if (
                    getattr(param, "sequence_parallel", False)
                    or "q_layernorm" in name
                    or "k_layernorm" in name
                ):
                    grads.append(param.main_grad.data)
        if grads:
            coalesced = _flatten_dense_tensors(grads)
            torch.distributed.all_reduce(coalesced, group=parallel_state.get_tensor_model_parallel_group())
            for buf, synced in zip(grads, _unflatten_dense_tensors(coalesced, grads)):
                buf.copy_(synced)


def finalize_model_grads(model, config):
    for model_chunk in model:
        model_chunk.finish_grad_sync()
    _allreduce_layernorm_grads(model, config)
