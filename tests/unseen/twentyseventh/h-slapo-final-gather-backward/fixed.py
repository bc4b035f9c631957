"""GPT model with sequence parallelism between the embedding and the output projection."""
import torch
import torch.nn.functional as F
from torch import nn
from megatron.core.tensor_parallel import (
    gather_from_sequence_parallel_region,
    scatter_to_sequence_parallel_region,
)


class GPTModel(nn.Module):
    def __init__(self, vocab_size, hidden_size, layers, final_layernorm):
        super().__init__()
        self.wte = nn.Embedding(vocab_size, hidden_size)  # full table on every rank
        self.layers, self.final_layernorm = layers, final_layernorm
        for p in self.final_layernorm.parameters():
            setattr(p, "sequence_parallel", True)

    def forward(self, input_ids, labels):
        h = self.wte(input_ids).transpose(0, 1).contiguous()  # [s, b, h]
        h = scatter_to_sequence_parallel_region(h)
        for layer in self.layers:
            h = layer(h)
        h = self.final_layernorm(h)
        h = gather_from_sequence_parallel_region(h, tensor_parallel_output_grad=False)
        logits = F.linear(h, self.wte.weight)
        return F.cross_entropy(logits.flatten(0, 1).float(), labels.t().flatten())
