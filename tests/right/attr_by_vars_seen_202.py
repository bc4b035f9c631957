import torch
import torch.nn.functional as F
from megatron.core.tensor_parallel import mappings as M
from megatron.core.tensor_parallel.layers import ColumnParallelLinear, RowParallelLinear


class Two(torch.nn.Module):
    def __init__(self, c):
        super().__init__()
        self.c = c
        self.up = ColumnParallelLinear(c.h, c.f, config=c, init_method=c.init, gather_output=False, bias=False)
        self.down = RowParallelLinear(c.f, c.h, config=c, init_method=c.init, bias=False, input_is_parallel=True, skip_bias_add=True)
        vars(self.down)["explicit_expert_comm"] = True

    def forward(self, x):
        y = self.down(self.up(x)[0].relu())[0]
        if self.c.sequence_parallel:
            return M.reduce_scatter_to_sequence_parallel_region(y)
        return M.reduce_from_tensor_model_parallel_region(y)


class Three(Two):
    def forward(self, x):
        down = self.down
        down.explicit_expert_comm = True
        y = down(self.up(x)[0].relu())[0]
        if self.c.sequence_parallel:
            return M.reduce_scatter_to_sequence_parallel_region(y)
        return M.reduce_from_tensor_model_parallel_region(y)
