import torch
import torch.nn.functional as F
from megatron.core.tensor_parallel import mappings as M
from megatron.core.tensor_parallel.layers import ColumnParallelLinear, RowParallelLinear


class Lm(torch.nn.Module):
    def __init__(self, config, body):
        super().__init__()
        self.config = config
        self.body = body
        self.final = torch.nn.LayerNorm(config.h)
        self.out = ColumnParallelLinear(config.h, config.v, config=config, init_method=config.init_method, gather_output=False, bias=False)
        if config.sequence_parallel:
            self.final.weight.sequence_parallel = True
            self.final.bias.sequence_parallel = True
            # the head is given whole sequences
            self.out.sequence_parallel = False
            self.out.allreduce_dgrad = False
            self.out.disable_grad_reduce = True

    def forward(self, x):
        h = self.final(self.body(x))
        if self.config.sequence_parallel:
            h = M.gather_from_sequence_parallel_region(h)
        return self.out(h)[0]
