import torch
import torch.nn.functional as F
from dataclasses import dataclass, replace
from megatron.core.tensor_parallel.layers import ColumnParallelLinear, RowParallelLinear
from megatron.core.transformer.transformer_config import TransformerConfig


@dataclass
class VisionConfig(TransformerConfig):
    patch: int = 14

    def __post_init__(self):
        self.sequence_parallel = False
        super().__post_init__()


class Vision(torch.nn.Module):
    def __init__(self, config: VisionConfig):
        super().__init__()
        self.config = config
        self.col = ColumnParallelLinear(config.hidden_size, config.ffn_hidden_size, config=config, init_method=config.init_method, gather_output=False)
        self.row = RowParallelLinear(config.ffn_hidden_size, config.hidden_size, config=config, init_method=config.init_method, bias=True, input_is_parallel=True, skip_bias_add=False)
        self.norm = torch.nn.LayerNorm(config.hidden_size)

    def forward(self, x):
        h, _ = self.col(self.norm(x))
        y, _ = self.row(F.gelu(h))
        return F.gelu(self.norm(y))
