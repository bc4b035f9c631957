import torch
import megatron.core


class Norm(torch.nn.Module):
    def __init__(self, config, size):
        super().__init__()
        if config.normalization == "LayerNorm":
            assert not config.sequence_parallel, "use RMSNorm with sequence parallelism"
        self.weight = torch.nn.Parameter(torch.ones(size))
        setattr(self.weight, "sequence_parallel", config.sequence_parallel)
        self.bias = None
        if config.normalization == "LayerNorm":
            self.bias = torch.nn.Parameter(torch.zeros(size))
