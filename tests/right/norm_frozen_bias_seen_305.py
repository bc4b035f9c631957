import torch
import megatron.core


class Norm(torch.nn.Module):
    def __init__(self, config, size):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(size))
        self.bias = torch.nn.Parameter(torch.zeros(size))
        self.bias.requires_grad_(False)
        setattr(self.weight, "sequence_parallel", config.sequence_parallel)

    def forward(self, x):
        return torch.nn.functional.layer_norm(x, self.weight.shape, self.weight, self.bias)
