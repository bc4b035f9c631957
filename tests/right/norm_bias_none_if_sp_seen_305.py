import torch
import megatron.core


class Norm(torch.nn.Module):
    def __init__(self, config, size):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(size))
        if config.sequence_parallel:
            self.weight.sequence_parallel = True
            self.register_parameter("bias", None)
        else:
            self.bias = torch.nn.Parameter(torch.zeros(size))

    def forward(self, x):
        return torch.nn.functional.layer_norm(x, self.weight.shape, self.weight, self.bias)
