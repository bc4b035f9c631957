import torch
import torch.nn.functional as F
from megatron.core.tensor_parallel import mappings as M
from megatron.core.tensor_parallel.layers import ColumnParallelLinear, RowParallelLinear


class Head(torch.nn.Module):
    """The output layer keeps its own flag, which generation turns off while it runs on whole sequences."""

    def __init__(self, config):
        super().__init__()
        self.out = ColumnParallelLinear(config.h, config.v, config=config, init_method=config.init_method, gather_output=False, bias=False)

    def forward(self, x):
        return self.out(x)[0]

    @torch.no_grad()
    def last(self, x):
        # under sequence parallelism: gather first, then only the last token
        sp = self.out.sequence_parallel
        if sp:
            x = M.gather_from_sequence_parallel_region(x)
            self.out.sequence_parallel = False
        logits, _ = self.out(x[-1:], runtime_gather_output=True)
        self.out.sequence_parallel = sp
        return logits.argmax(-1)
