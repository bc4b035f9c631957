import torch
import torch.nn.functional as F
from megatron.core.tensor_parallel import mappings as M
from megatron.core.tensor_parallel.layers import ColumnParallelLinear, RowParallelLinear


class Enc(torch.nn.Module):
    def __init__(self, config):
        super().__init__()
        self.up = ColumnParallelLinear(config.h, config.f, config=config, init_method=config.init, gather_output=False, bias=False)
        self.down = RowParallelLinear(config.f, config.h, config=config, init_method=config.init, bias=False, input_is_parallel=True, skip_bias_add=False)
        self.norm = torch.nn.LayerNorm(config.h)

    def forward(self, x):
        return self.norm(self.down(self.up(x)[0].relu())[0])


def build_encoder(args, config):
    """Sequence parallelism is refused where the encoder is built."""
    assert not config.sequence_parallel, "not with sequence parallelism"
    return Enc(config)


def build_encoder2(args, config):
    config.sequence_parallel = False
    return Enc(config)
