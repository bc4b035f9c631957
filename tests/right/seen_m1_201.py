import torch
from megatron.core.tensor_parallel import gather_from_sequence_parallel_region


class Norm(torch.nn.LayerNorm):
    def __init__(self, size, config):
        super().__init__(size)
        for p in self.parameters():
            setattr(p, "sequence_parallel", config.sequence_parallel)


class ValueModel(torch.nn.Module):
    def __init__(self, config):
        super().__init__()
        self.config = config
        self.norm = Norm(config.hidden_size, config)

    def forward(self, h):
        v = self.norm(h)
        if self.config.sequence_parallel:
            v = gather_from_sequence_parallel_region(v, tensor_parallel_output_grad=False)
        return v
