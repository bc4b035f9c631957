"""GPT-J style layer: attention and MLP in parallel, one all-reduce for both.
EleutherAI/gpt-neox, model/transformer.py, from memory.
"""
import torch.nn as nn
from megatron import mpu
from megatron.model.norms import get_norm
from megatron.model.transformer import ParallelMLP, ParallelSelfAttention


class ParallelTransformerLayer(nn.Module):
    def __init__(self, neox_args, attention_mask_func, init_method, output_layer_init_method, layer_number):
        super().__init__()
        norm, eps = get_norm(neox_args)
        self.gpt_j_residual = neox_args.gpt_j_residual
        self.input_layernorm = norm(neox_args.hidden_size, eps=eps)
        self.post_attention_layernorm = norm(neox_args.hidden_size, eps=eps)
        if self.gpt_j_residual:
            self.reduce = mpu.mappings.reduce_from_model_parallel_region
        self.attention = ParallelSelfAttention(
            neox_args=neox_args,
            attention_mask_func=attention_mask_func,
            init_method=init_method,
            output_layer_init_method=output_layer_init_method,
            layer_number=layer_number,
            parallel_output=self.gpt_j_residual,
        )
        self.mlp = ParallelMLP(
            neox_args=neox_args,
            init_method=init_method,
            output_layer_init_method=output_layer_init_method,
            parallel_output=self.gpt_j_residual,
        )

    def forward(self, x, attention_mask):
        residual = x
        if self.gpt_j_residual:
            attention_output, attention_bias = self.attention(self.input_layernorm(x), attention_mask)
            mlp_output, mlp_bias = self.mlp(self.post_attention_layernorm(x))
            output = self.reduce(attention_output + mlp_output + residual)  # BUG
            return output + attention_bias + mlp_bias
        attention_output, attention_bias = self.attention(self.input_layernorm(x), attention_mask)
        x = residual + attention_output + attention_bias
        mlp_output, mlp_bias = self.mlp(self.post_attention_layernorm(x))
        return x + mlp_output + mlp_bias
