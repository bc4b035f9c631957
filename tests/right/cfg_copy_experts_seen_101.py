import copy
import torch
import torch.nn.functional as F
from megatron.core.tensor_parallel import mappings as M
from megatron.core.tensor_parallel.layers import ColumnParallelLinear, RowParallelLinear


class Expert(torch.nn.Module):
    def __init__(self, config, is_expert=False):
        super().__init__()
        self.up = ColumnParallelLinear(config.h, config.f, config=config, init_method=config.init, gather_output=False, bias=False, is_expert=is_expert, skip_bias_add=True)
        self.down = RowParallelLinear(config.f, config.h, config=config, init_method=config.init, bias=False, input_is_parallel=True, skip_bias_add=True, is_expert=is_expert)

    def forward(self, x):
        return self.down(self.up(x)[0].relu())[0]


class Sequential(torch.nn.Module):
    """Experts without expert parallelism, on whole tokens: the layers of an own configuration without sequence parallelism."""

    def __init__(self, config, n):
        super().__init__()
        self.config = config
        local = copy.copy(config)
        local.sequence_parallel = False
        self.experts = torch.nn.ModuleList([Expert(local) for _ in range(n)])
        self.gate = torch.nn.Linear(config.h, n, bias=False)

    def forward(self, x):
        if self.config.sequence_parallel:
            x = M.gather_from_sequence_parallel_region(x, tensor_parallel_output_grad=False)
        p = self.gate(x).softmax(-1)
        y = sum(e(x) * p[..., i:i + 1] for i, e in enumerate(self.experts))
        if self.config.sequence_parallel:
            y = M.scatter_to_sequence_parallel_region(y)
        return y
