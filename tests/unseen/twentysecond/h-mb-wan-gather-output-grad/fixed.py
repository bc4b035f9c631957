"""Diffusion transformer, sequence gathered before the head (Megatron-Bridge, see NVIDIA/Megatron-LM#7452)."""
import torch
from megatron.core.tensor_parallel import (
    gather_from_sequence_parallel_region,
    scatter_to_sequence_parallel_region,
)


class WanModel(torch.nn.Module):
    def __init__(self, config, patch_embedding, decoder, out_channels):
        super().__init__()
        self.patch_embedding, self.decoder = patch_embedding, decoder
        self.head = torch.nn.Linear(config.hidden_size, out_channels)  # replicated over TP
        self.sequence_parallel = config.sequence_parallel

    def forward(self, x, timesteps):
        # x: the same on every TP rank
        x = self.patch_embedding(x)
        if self.sequence_parallel:
            x = scatter_to_sequence_parallel_region(x)
        x = self.decoder(x, timesteps)
        if self.sequence_parallel:
            x = gather_from_sequence_parallel_region(x, tensor_parallel_output_grad=False)
        return self.head(x)
