"""Legacy transformer layer and the reduction of its sequence-parallel gradients."""
# thread: NVIDIA-NeMo/Speech#7395
import torch
from megatron.core import parallel_state

from nemo.collections.nlp.modules.common.megatron.attention import ParallelAttention
from nemo.collections.nlp.modules.common.megatron.fused_layer_norm import get_layer_norm
from nemo.collections.nlp.modules.common.megatron.mlp import ParallelMLP
from nemo.collections.nlp.modules.common.megatron.module import MegatronModule


class ParallelTransformerLayer_(MegatronModule):
    def __init__(
        self,
        config,
        layer_number,
        hidden_size,
        ffn_hidden_size,
        num_attention_heads,
        layernorm_epsilon=1e-5,
        persist_layer_norm=False,
        sequence_parallel=False,
    ):
        super().__init__(config=config)
        if persist_layer_norm:
            # apex fast layer norm, takes care of its own marks
            self.input_layernorm = get_layer_norm(hidden_size, layernorm_epsilon, True, sequence_parallel)
            self.post_attention_layernorm = get_layer_norm(
                hidden_size, layernorm_epsilon, True, sequence_parallel
            )
        else:
            self.input_layernorm = torch.nn.LayerNorm(hidden_size, layernorm_epsilon)
            self.post_attention_layernorm = torch.nn.LayerNorm(hidden_size, layernorm_epsilon)
            for norm in (self.input_layernorm, self.post_attention_layernorm):
                for param in norm.parameters():
                    setattr(param, "sequence_parallel", sequence_parallel)
        # column- and row-parallel linears, gathering and scattering the sequence themselves
        self.self_attention = ParallelAttention(
            config=config,
            layer_number=layer_number,
            num_attention_heads=num_attention_heads,
            hidden_size=hidden_size,
            sequence_parallel=sequence_parallel,
        )
        self.mlp = ParallelMLP(
            config=config,
            hidden_size=hidden_size,
            ffn_hidden_size=ffn_hidden_size,
            sequence_parallel=sequence_parallel,
        )

    def forward(self, hidden_states, attention_mask):
        """hidden_states: [s / tp, b, h] under sequence parallelism."""
        attention_output, _ = self.self_attention(self.input_layernorm(hidden_states), attention_mask)
        hidden_states = hidden_states + attention_output
        mlp_output, _ = self.mlp(self.post_attention_layernorm(hidden_states))
        return hidden_states + mlp_output


def allreduce_sequence_parallel_gradients(modules, megatron_amp_O2):
    """Called after the backward passes of all microbatches."""
    grads = []
    for module in modules:
        for param in module.parameters():
            if getattr(param, "sequence_parallel", False) and param.requires_grad:
                grads.append(param.main_grad.data if megatron_amp_O2 else param.grad.data)
    if not grads:
        return
    coalesced = torch._utils._flatten_dense_tensors(grads)
    torch.distributed.all_reduce(coalesced, group=parallel_state.get_tensor_model_parallel_group())
    for buf, synced in zip(grads, torch._utils._unflatten_dense_tensors(coalesced, grads)):
        buf.copy_(synced)
