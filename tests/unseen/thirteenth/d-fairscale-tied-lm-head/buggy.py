# GPT decoder with a vocabulary-parallel tied output head on fairscale model parallelism.
import torch
import torch.nn as nn
import torch.nn.functional as F
from fairscale.nn.model_parallel.cross_entropy import vocab_parallel_cross_entropy
from fairscale.nn.model_parallel.layers import (
    ColumnParallelLinear,
    RowParallelLinear,
    VocabParallelEmbedding,
)
from fairscale.nn.model_parallel.mappings import gather_from_model_parallel_region


class FeedForward(nn.Module):
    def __init__(self, dim, hidden):
        super().__init__()
        self.w1 = ColumnParallelLinear(dim, hidden, bias=False, gather_output=False)
        self.w2 = RowParallelLinear(hidden, dim, bias=False, input_is_parallel=True)

    def forward(self, x):
        return self.w2(F.silu(self.w1(x)))


class Decoder(nn.Module):
    def __init__(self, vocab_size, dim, hidden, n_layers):
        super().__init__()
        self.tok_embeddings = VocabParallelEmbedding(vocab_size, dim)
        self.norms = nn.ModuleList(nn.LayerNorm(dim) for _ in range(n_layers))
        self.layers = nn.ModuleList(FeedForward(dim, hidden) for _ in range(n_layers))
        self.norm = nn.LayerNorm(dim)

    def forward(self, tokens, targets=None):
        h = self.tok_embeddings(tokens)
        for norm, layer in zip(self.norms, self.layers):
            h = h + layer(norm(h))
        h = self.norm(h)
        # weight: [vocab / mp, dim]
        logits = F.linear(h, self.tok_embeddings.weight)  # BUG
        if targets is None:
            return gather_from_model_parallel_region(logits)
        return vocab_parallel_cross_entropy(logits.float(), targets).mean()
