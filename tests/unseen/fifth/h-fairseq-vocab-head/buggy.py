"""Output projection tied to the vocab-parallel embedding."""
import torch
import torch.nn.functional as F
from fairseq.model_parallel.megatron.mpu import (
    VocabParallelEmbedding,
    copy_to_model_parallel_region,
    gather_from_model_parallel_region,
)


class ModelParallelDecoder(torch.nn.Module):
    def __init__(self, embed_tokens: VocabParallelEmbedding, layers, final_norm):
        super().__init__()
        self.embed_tokens, self.layers, self.final_norm = embed_tokens, layers, final_norm

    def extract_features(self, tokens):
        x = self.embed_tokens(tokens)
        for layer in self.layers:
            x = layer(x)
        return self.final_norm(x)

    def output_layer(self, features):
        # features: the same on every model-parallel rank; the weight holds a slice of the vocabulary
        x = F.linear(features, self.embed_tokens.weight)  # BUG: backward does not sum over the vocabulary slices
        return gather_from_model_parallel_region(x)

    def forward(self, tokens):
        return self.output_layer(self.extract_features(tokens))
