# RIGHT: the bias is there to load old checkpoints and is not used in the forward
import torch
import megatron.core


class Norm(torch.nn.Module):
    def __init__(self, config, size):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(size))
        self.bias = torch.nn.Parameter(torch.zeros(size))
        setattr(self.weight, "sequence_parallel", config.sequence_parallel)

    def forward(self, x):
        return torch.nn.functional.rms_norm(x, (x.shape[-1],), self.weight)
