import torch
import megatron.core


class Linear(torch.nn.Module):
    """Whole on every rank. The bias is added after the gather, by the caller, to the same values on each rank."""

    def __init__(self, config, size):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(size))
        self.bias = torch.nn.Parameter(torch.zeros(size))
        setattr(self.weight, "sequence_parallel", config.sequence_parallel)

    def forward(self, x):
        return x * self.weight, self.bias


def head(layer, x, gather):
    out, bias = layer(x)
    return gather(out) + bias
