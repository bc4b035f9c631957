"""The MLP: a column-parallel layer, an activation that each rank applies to its features, a row-parallel layer."""

import torch
import torch.nn.functional as F

from .config import TransformerConfig
from .layers import ColumnParallelLinear, RowParallelLinear


class MLP(torch.nn.Module):
    def __init__(self, config: TransformerConfig):
        super().__init__()
        self.config = config
        self.linear_fc1 = ColumnParallelLinear(config.hidden_size, config.ffn_hidden_size, config=config)
        self.linear_fc2 = RowParallelLinear(config.ffn_hidden_size, config.hidden_size, config=config)

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        intermediate = self.linear_fc1(hidden_states)
        intermediate = F.gelu(intermediate)
        output, _ = self.linear_fc2(intermediate)
        return output
