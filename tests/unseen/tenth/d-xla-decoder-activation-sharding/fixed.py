"""Decoder layer with activation sharding over an SPMD mesh (torchprime Llama)."""
import numpy as np
import torch
import torch_xla.distributed.spmd as xs
import torch_xla.runtime as xr


def get_mesh(fsdp, tensor):
    n = xr.global_runtime_device_count()
    mesh = xs.Mesh(np.arange(n), (fsdp, tensor), ("fsdp", "tensor"))
    xs.set_global_mesh(mesh)
    return mesh


class LlamaDecoderLayer(torch.nn.Module):
    def __init__(self, self_attn, mlp, input_layernorm, post_attention_layernorm, mesh):
        super().__init__()
        self.self_attn, self.mlp = self_attn, mlp
        self.input_layernorm = input_layernorm
        self.post_attention_layernorm = post_attention_layernorm
        self.mesh = mesh

    def forward(self, hidden_states, attention_mask=None, position_ids=None):
        residual = hidden_states
        hidden_states = self.input_layernorm(hidden_states)
        hidden_states = self.self_attn(hidden_states, attention_mask, position_ids)
        hidden_states = residual + hidden_states

        residual = hidden_states
        hidden_states = self.mlp(self.post_attention_layernorm(hidden_states))
        hidden_states = residual + hidden_states
        hidden_states = xs.mark_sharding_with_gradients(hidden_states, self.mesh, ("fsdp", None, "tensor"))
        return hidden_states
