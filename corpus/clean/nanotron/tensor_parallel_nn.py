"""Tensor-parallel modules with two modes: the bias of the row-parallel layer exists on rank 0 only."""

from typing import Optional, Tuple

import torch
from nanotron import distributed as dist
from nanotron.parallel.parameters import NanotronParameter
from nanotron.parallel.sharded_parameters import (
    SplitConfig,
    create_sharded_parameter_from_config,
    mark_all_parameters_in_module_as_sharded,
)
from nanotron.parallel.tensor_parallel.distributed_differentiable_primitives import (
    differentiable_all_gather,
    differentiable_all_reduce_sum,
    differentiable_identity,
    differentiable_reduce_scatter_sum,
)
from nanotron.parallel.tensor_parallel.enum import TensorParallelLinearMode
from torch import nn
from torch.nn import functional as F


class ColumnLinear(nn.Linear):
    def __init__(
        self,
        in_features: int,
        out_features: int,
        pg: dist.ProcessGroup,
        mode: TensorParallelLinearMode,
        bias: bool = True,
        contiguous_chunks: Optional[Tuple[int, ...]] = None,
    ):
        self.pg = pg
        self.world_size = pg.size()
        assert out_features % self.world_size == 0
        super().__init__(in_features, out_features // self.world_size, bias=bias)
        self.mode = mode
        split_config = SplitConfig(split_dim=0, contiguous_chunks=contiguous_chunks)
        mark_all_parameters_in_module_as_sharded(self, pg=self.pg, split_config=split_config)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.mode is TensorParallelLinearMode.ALL_REDUCE:
            x = differentiable_identity(x, group=self.pg)
        elif self.mode is TensorParallelLinearMode.REDUCE_SCATTER:
            x = differentiable_all_gather(x, group=self.pg)
        else:
            raise ValueError(f"Got unexpected mode: {self.mode}.")
        return F.linear(x, self.weight, self.bias)


class RowLinear(nn.Linear):
    def __init__(self, in_features: int, out_features: int, pg: dist.ProcessGroup, mode: TensorParallelLinearMode, bias: bool = True):
        self.pg = pg
        self.world_size = pg.size()
        assert in_features % self.world_size == 0
        # Only rank 0 has the bias: it is added once to the sum.
        bias = dist.get_rank(self.pg) == 0 and bias
        super().__init__(in_features // self.world_size, out_features, bias=bias)
        self.mode = mode
        split_config = SplitConfig(split_dim=1)
        for name, param in list(self.named_parameters()):
            if name == "bias":
                new_param = NanotronParameter(tensor=param)
            else:
                new_param = create_sharded_parameter_from_config(parameter=param, pg=self.pg, split_config=split_config)
            setattr(self, name, new_param)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out = F.linear(x, self.weight, self.bias)
        if self.mode is TensorParallelLinearMode.ALL_REDUCE:
            return differentiable_all_reduce_sum(out, group=self.pg)
        if self.mode is TensorParallelLinearMode.REDUCE_SCATTER:
            return differentiable_reduce_scatter_sum(out, group=self.pg)
        raise ValueError(f"Got unexpected mode: {self.mode}.")


class Embedding(nn.Embedding):
    def __init__(self, num_embeddings: int, embedding_dim: int, pg: dist.ProcessGroup, mode: TensorParallelLinearMode):
        self.pg = pg
        self.rank = dist.get_rank(self.pg)
        block_size = num_embeddings // pg.size()
        self.min_id = self.rank * block_size
        self.max_id = (self.rank + 1) * block_size
        super().__init__(block_size, embedding_dim)
        self.mode = mode
        mark_all_parameters_in_module_as_sharded(self, pg=self.pg, split_config=SplitConfig(split_dim=0))

    def forward(self, input_ids: torch.LongTensor) -> torch.Tensor:
        if self.pg.size() > 1:
            input_mask = torch.logical_or(self.min_id > input_ids, input_ids >= self.max_id)
            masked_input = input_ids.clone() - self.min_id
            masked_input[input_mask] = 0
        else:
            masked_input = input_ids
        out = super().forward(masked_input)
        if self.pg.size() > 1:
            out = out * (~input_mask[..., None])
        if self.mode is TensorParallelLinearMode.ALL_REDUCE:
            return differentiable_all_reduce_sum(out, group=self.pg)
        return differentiable_reduce_scatter_sum(out, group=self.pg)
