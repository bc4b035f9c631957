"""Transformer layers between an embedding and an output layer that are both split along the vocabulary."""

import torch
import torch.nn.functional as F

from .attention import SelfAttention
from .config import TransformerConfig
from .layers import ColumnParallelLinear, LayerNorm, VocabParallelEmbedding
from .moe import MoELayer


class TransformerLayer(torch.nn.Module):
    def __init__(self, config: TransformerConfig):
        super().__init__()
        self.config = config
        self.input_layernorm = LayerNorm(config, config.hidden_size)
        self.self_attention = SelfAttention(config)
        self.pre_mlp_layernorm = LayerNorm(config, config.hidden_size)
        self.mlp = MoELayer(config)

    def forward(self, hidden_states: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        residual = hidden_states
        attention_output = self.self_attention(self.input_layernorm(hidden_states), attention_mask)
        attention_output = F.dropout(attention_output, p=self.config.hidden_dropout, training=self.training)
        hidden_states = residual + attention_output

        residual = hidden_states
        mlp_output = self.mlp(self.pre_mlp_layernorm(hidden_states))
        mlp_output = F.dropout(mlp_output, p=self.config.hidden_dropout, training=self.training)
        return residual + mlp_output


class GPTModel(torch.nn.Module):
    def __init__(self, config: TransformerConfig):
        super().__init__()
        self.config = config
        self.embedding = VocabParallelEmbedding(
            config.vocab_size,
            config.hidden_size,
            config=config,
            reduce_scatter_embeddings=config.sequence_parallel,
        )
        self.embedding_layernorm = LayerNorm(config, config.hidden_size)
        self.layers = torch.nn.ModuleList([TransformerLayer(config) for _ in range(config.num_layers)])
        self.final_layernorm = LayerNorm(config, config.hidden_size)
        self.output_layer = ColumnParallelLinear(
            config.hidden_size,
            config.vocab_size,
            config=config,
            bias=False,
            gather_output=config.gather_output,
        )

    def forward(self, tokens: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        hidden_states = self.embedding(tokens)
        hidden_states = self.embedding_layernorm(hidden_states)
        for layer in self.layers:
            hidden_states = layer(hidden_states, attention_mask)
        hidden_states = self.final_layernorm(hidden_states)
        return self.output_layer(hidden_states)
