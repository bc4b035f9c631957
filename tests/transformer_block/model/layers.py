"""Layers split over the tensor-parallel ranks, and the norm between them. Activations are [s, b, h]."""

import torch
import torch.nn.functional as F
from megatron.core import parallel_state
from megatron.core.tensor_parallel import set_tensor_model_parallel_attributes
from megatron.core.tensor_parallel.mappings import (
    copy_to_tensor_model_parallel_region,
    gather_from_sequence_parallel_region,
    gather_from_tensor_model_parallel_region,
    reduce_from_tensor_model_parallel_region,
    reduce_scatter_to_sequence_parallel_region,
    scatter_to_tensor_model_parallel_region,
)
from torch.nn.parameter import Parameter

from .config import TransformerConfig


class LayerNorm(torch.nn.Module):
    """Layer norm; under sequence parallelism each rank sees its own tokens, and the finaliser sums the gradients."""

    def __init__(self, config: TransformerConfig, hidden_size: int):
        super().__init__()
        self.hidden_size = (hidden_size,)
        self.eps = config.layernorm_epsilon
        self.weight = Parameter(torch.ones(hidden_size))
        self.bias = Parameter(torch.zeros(hidden_size))
        setattr(self.weight, "sequence_parallel", config.sequence_parallel)
        setattr(self.bias, "sequence_parallel", config.sequence_parallel)

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        return F.layer_norm(hidden_states, self.hidden_size, self.weight, self.bias, self.eps)


class VocabParallelEmbedding(torch.nn.Module):
    """Embedding with the vocabulary split over the ranks: [b, s] token ids to [s, b, h], or to [s/tp, b, h]."""

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        *,
        config: TransformerConfig,
        reduce_scatter_embeddings: bool = False,
    ):
        super().__init__()
        self.reduce_scatter_embeddings = reduce_scatter_embeddings
        self.tp_group = parallel_state.get_tensor_model_parallel_group()
        per_partition = num_embeddings // parallel_state.get_tensor_model_parallel_world_size()
        self.vocab_start_index = parallel_state.get_tensor_model_parallel_rank() * per_partition
        self.vocab_end_index = self.vocab_start_index + per_partition
        self.weight = Parameter(torch.empty(per_partition, embedding_dim))
        torch.nn.init.normal_(self.weight, mean=0.0, std=config.init_method_std)
        set_tensor_model_parallel_attributes(tensor=self.weight, is_parallel=True, dim=0, stride=1)

    def forward(self, input_ids: torch.Tensor) -> torch.Tensor:
        input_mask = (input_ids < self.vocab_start_index) | (input_ids >= self.vocab_end_index)
        masked_input = input_ids.clone() - self.vocab_start_index
        masked_input[input_mask] = 0
        embeddings_parallel = F.embedding(masked_input, self.weight)
        embeddings_parallel[input_mask, :] = 0.0
        embeddings_parallel = embeddings_parallel.transpose(0, 1).contiguous()
        if self.reduce_scatter_embeddings:
            embeddings = reduce_scatter_to_sequence_parallel_region(embeddings_parallel, group=self.tp_group)
        else:
            embeddings = reduce_from_tensor_model_parallel_region(embeddings_parallel, group=self.tp_group)
        return embeddings


class ColumnParallelLinear(torch.nn.Module):
    """Linear layer Y = XA + b with the columns of A, the output features, split over the ranks."""

    def __init__(
        self,
        input_size: int,
        output_size: int,
        *,
        config: TransformerConfig,
        bias: bool = True,
        gather_output: bool = False,
    ):
        super().__init__()
        self.gather_output = gather_output
        self.sequence_parallel = config.sequence_parallel
        self.tp_group = parallel_state.get_tensor_model_parallel_group()
        per_partition = output_size // parallel_state.get_tensor_model_parallel_world_size()
        self.weight = Parameter(torch.empty(per_partition, input_size))
        torch.nn.init.normal_(self.weight, mean=0.0, std=config.init_method_std)
        set_tensor_model_parallel_attributes(tensor=self.weight, is_parallel=True, dim=0, stride=1)
        if bias:
            self.bias = Parameter(torch.zeros(per_partition))
            set_tensor_model_parallel_attributes(tensor=self.bias, is_parallel=True, dim=0, stride=1)
        else:
            self.register_parameter("bias", None)

    def forward(self, input_: torch.Tensor) -> torch.Tensor:
        if self.sequence_parallel:
            input_parallel = gather_from_sequence_parallel_region(input_, group=self.tp_group)
        else:
            input_parallel = copy_to_tensor_model_parallel_region(input_, group=self.tp_group)
        output_parallel = F.linear(input_parallel, self.weight, self.bias)
        if self.gather_output:
            output = gather_from_tensor_model_parallel_region(output_parallel, group=self.tp_group)
        else:
            output = output_parallel
        return output


class RowParallelLinear(torch.nn.Module):
    """Linear layer Y = XA + b with the rows of A, the input features, split over the ranks; b is added to the sum."""

    def __init__(
        self,
        input_size: int,
        output_size: int,
        *,
        config: TransformerConfig,
        input_is_parallel: bool = True,
        skip_bias_add: bool = False,
    ):
        super().__init__()
        self.input_is_parallel = input_is_parallel
        self.skip_bias_add = skip_bias_add
        self.sequence_parallel = config.sequence_parallel
        self.tp_group = parallel_state.get_tensor_model_parallel_group()
        per_partition = input_size // parallel_state.get_tensor_model_parallel_world_size()
        self.weight = Parameter(torch.empty(output_size, per_partition))
        torch.nn.init.normal_(self.weight, mean=0.0, std=config.init_method_std)
        set_tensor_model_parallel_attributes(tensor=self.weight, is_parallel=True, dim=1, stride=1)
        self.bias = Parameter(torch.zeros(output_size))
        setattr(self.bias, "sequence_parallel", config.sequence_parallel)

    def forward(self, input_: torch.Tensor):
        if self.input_is_parallel:
            input_parallel = input_
        else:
            input_parallel = scatter_to_tensor_model_parallel_region(input_, group=self.tp_group)
        partial_output = F.linear(input_parallel, self.weight)
        if self.sequence_parallel:
            reduced = reduce_scatter_to_sequence_parallel_region(partial_output, group=self.tp_group)
        else:
            reduced = reduce_from_tensor_model_parallel_region(partial_output, group=self.tp_group)
        if self.skip_bias_add:
            return reduced, self.bias
        output = reduced + self.bias
        return output, None
