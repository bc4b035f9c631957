"""All-reduce of layernorm gradients over tensor parallelism (Megatron-Core finalize_model_grads)."""
import torch
from torch._utils import _flatten_dense_tensors, _unflatten_dense_tensors
from megatron.core import parallel_state
from megatron.core.tensor_parallel import ColumnParallelLinear


class SelfAttention(torch.nn.Module):
    def __init__(self, config, core_attention, linear_proj):
        super().__init__()
        tp = parallel_state.get_tensor_model_parallel_world_size()
        self.np = config.num_attention_heads // tp
        self.hn = config.kv_channels
        self.linear_qkv = ColumnParallelLinear(
            config.hidden_size, 3 * config.num_attention_heads * self.hn,
            config=config, init_method=config.init_method, bias=False, gather_output=False,
        )
        self.q_layernorm = torch.nn.LayerNorm(self.hn)
        self.k_layernorm = torch.nn.LayerNorm(self.hn)
        self.core_attention, self.linear_proj = core_attention, linear_proj

    def forward(self, hidden_states, attention_mask):
        mixed_qkv, _ = self.linear_qkv(hidden_states)
        mixed_qkv = mixed_qkv.view(*mixed_qkv.shape[:2], self.np, 3 * self.hn)
        query, key, value = torch.split(mixed_qkv, self.hn, dim=3)
        query, key = self.q_layernorm(query), self.k_layernorm(key)
        return self.linear_proj(self.core_attention(query, key, value, attention_mask))


def _allreduce_layernorm_grads(model, config):
    if parallel_state.get_tensor_model_parallel_world_size() > 1:
        grads = []
        for model_chunk in model:
            for name, param in model_chunk.named_parameters():
                if param.requires_grad and (
                    getattr(param, "sequence_parallel", False)
                    or "q_layernorm" in name
                    or "k_layernorm" in name
                ):
                    grads.append(param.main_grad.data)
        if grads:
            coalesced = _flatten_dense_tensors(grads)
            torch.distributed.all_reduce(
                coalesced, group=parallel_state.get_tensor_model_parallel_group()
            )
            for buf, synced in zip(grads, _unflatten_dense_tensors(coalesced, grads)):
                buf.copy_(synced)
