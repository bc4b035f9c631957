import torch
from megatron.core.tensor_parallel import scatter_to_sequence_parallel_region


class Embedding(torch.nn.Module):
    def forward(self, embeddings):
        # every rank keeps its part of the embeddings: [s/tp, b, h]
        return scatter_to_sequence_parallel_region(embeddings)
