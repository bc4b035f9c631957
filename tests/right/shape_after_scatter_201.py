import torch
from megatron.core.tensor_parallel import scatter_to_sequence_parallel_region


class Embedding(torch.nn.Module):
    def forward(self, x):
        x = x.transpose(0, 1).contiguous()
        x = scatter_to_sequence_parallel_region(x)
        # x: [s/tp, b, h]
        return x
