"""Diffusion transformer whose decoder runs with sequence parallelism."""
import torch
from megatron.core.tensor_parallel import (
    gather_from_sequence_parallel_region,
    scatter_to_sequence_parallel_region,
)


class WanModel(torch.nn.Module):
    def __init__(self, config, decoder, patch_dim):
        super().__init__()
        self.config, self.decoder = config, decoder
        self.patch_embedding = torch.nn.Linear(patch_dim, config.hidden_size)  # replicated over TP
        self.head = torch.nn.Linear(config.hidden_size, patch_dim)  # replicated over TP

    def forward(self, x):
        # x: [s, b, patch_dim], the same on every TP rank
        x = self.patch_embedding(x)
        if self.config.sequence_parallel:
            x = scatter_to_sequence_parallel_region(x)
        x = self.decoder(x)
        if self.config.sequence_parallel:
            x = gather_from_sequence_parallel_region(x, tensor_parallel_output_grad=False)
        return self.head(x)
