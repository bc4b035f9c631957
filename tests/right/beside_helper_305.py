"""a helper that the class calls marks the bias."""
import torch


def _for_the_sum(parameter, config):
    parameter.sequence_parallel = config.sequence_parallel


class Norm(torch.nn.Module):
    def __init__(self, config, size):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(size))
        self.bias = torch.nn.Parameter(torch.zeros(size))
        self.weight.sequence_parallel = config.sequence_parallel
        _for_the_sum(self.bias, config)

    def forward(self, x):
        return torch.nn.functional.layer_norm(x, self.weight.shape, self.weight, self.bias)
