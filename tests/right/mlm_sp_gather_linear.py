"""Under sequence parallelism one gather feeds gate and up projections; its backward is a reduce-scatter."""
import torch
import torch.nn.functional as F
from megatron.core import parallel_state
from megatron.core.tensor_parallel import (
    copy_to_tensor_model_parallel_region,
    gather_from_sequence_parallel_region,
    reduce_from_tensor_model_parallel_region,
    reduce_scatter_to_sequence_parallel_region,
)


class GatedMLP(torch.nn.Module):
    def __init__(self, config):
        super().__init__()
        n = parallel_state.get_tensor_model_parallel_world_size()
        h, f = config.hidden_size, config.ffn_hidden_size // n
        self.gate = torch.nn.Parameter(torch.empty(f, h))
        self.up = torch.nn.Parameter(torch.empty(f, h))
        self.down = torch.nn.Parameter(torch.empty(h, f))
        self.norm = torch.nn.Parameter(torch.ones(h))
        for p in (self.gate, self.up, self.down):
            p.tensor_model_parallel = True
        if config.sequence_parallel:
            setattr(self.norm, "sequence_parallel", True)
        if config.sequence_parallel:
            self.enter = lambda x: gather_from_sequence_parallel_region(x, tensor_parallel_output_grad=True)
            self.leave = reduce_scatter_to_sequence_parallel_region
        else:
            self.enter = copy_to_tensor_model_parallel_region
            self.leave = reduce_from_tensor_model_parallel_region

    def forward(self, x):
        h = F.rms_norm(x, (x.shape[-1],)) * self.norm
        h = self.enter(h)
        h = F.silu(F.linear(h, self.gate)) * F.linear(h, self.up)
        return x + self.leave(F.linear(h, self.down))
