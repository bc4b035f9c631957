"""a size of a head is whole, though it is made of two sizes of this rank."""
import torch


class Mixer(torch.nn.Module):
    def __init__(self, hidden_size, heads, tp_size):
        super().__init__()
        hidden_per_rank = hidden_size // tp_size
        heads_per_rank = heads // tp_size
        self.head_size = hidden_per_rank // heads_per_rank
        self.decay = torch.nn.Parameter(torch.ones(heads_per_rank))
        setattr(self.decay, "tensor_model_parallel", True)
        self.norm = torch.nn.LayerNorm(self.head_size)
        self.scale = torch.nn.Parameter(torch.full((self.head_size,), 1.0 / tp_size))
        self.gain = torch.nn.Parameter(torch.ones(self.head_size) / tp_size)

    def forward(self, x):
        return self.norm(x) * self.scale * self.gain
