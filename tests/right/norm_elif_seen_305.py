import torch
import megatron.core


class Norm(torch.nn.Module):
    def __init__(self, config, size):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(size))
        self.bias = torch.nn.Parameter(torch.zeros(size))
        if not config.sequence_parallel:
            return
        self.weight.sequence_parallel = True
        del self.bias
        self.register_buffer("bias", torch.zeros(size), persistent=False)
