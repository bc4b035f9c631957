"""What the model is made of, and how it is spread over the ranks."""

from dataclasses import dataclass


@dataclass
class TransformerConfig:
    num_layers: int = 2
    hidden_size: int = 1024
    ffn_hidden_size: int = 4096
    num_attention_heads: int = 16
    vocab_size: int = 50304
    num_moe_experts: int = 8
    moe_router_topk: int = 2
    moe_ffn_hidden_size: int = 1024
    hidden_dropout: float = 0.1
    layernorm_epsilon: float = 1e-5
    init_method_std: float = 0.02
    # Activations outside the tensor-parallel regions are split along the sequence.
    sequence_parallel: bool = False
    # The output layer gives the logits of the whole vocabulary on every rank.
    gather_output: bool = False
