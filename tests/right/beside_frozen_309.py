"""a part that is not trained has no gradient, and no norm of it counts it."""
import torch
from megatron.core import parallel_state


class Mixer(torch.nn.Module):
    def __init__(self, heads):
        super().__init__()
        tp_size = parallel_state.get_tensor_model_parallel_world_size()
        self.heads_local = heads // tp_size
        self.decay = torch.nn.Parameter(torch.ones(self.heads_local))
        setattr(self.decay, "tensor_model_parallel", True)
        self.slope = torch.nn.Parameter(torch.arange(1, self.heads_local + 1).float(), requires_grad=False)
        self.register_buffer("offset", torch.zeros(self.heads_local))

    def forward(self, x):
        return x * self.decay + self.slope + self.offset
