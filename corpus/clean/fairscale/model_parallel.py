"""Column- and row-parallel layers and a parallel embedding in fairscale's style, over its mappings."""

import torch
import torch.nn.functional as F
import torch.nn.init as init
from fairscale.nn.model_parallel.initialize import get_model_parallel_rank, get_model_parallel_world_size
from fairscale.nn.model_parallel.mappings import (
    copy_to_model_parallel_region,
    gather_from_model_parallel_region,
    reduce_from_model_parallel_region,
    scatter_to_model_parallel_region,
)
from fairscale.nn.model_parallel.utils import divide_and_check_no_remainder
from torch.nn.parameter import Parameter


class VocabParallelEmbedding(torch.nn.Module):
    def __init__(self, num_embeddings: int, embedding_dim: int):
        super().__init__()
        size, rank = get_model_parallel_world_size(), get_model_parallel_rank()
        self.per_partition = divide_and_check_no_remainder(num_embeddings, size)
        self.vocab_start_index = rank * self.per_partition
        self.vocab_end_index = self.vocab_start_index + self.per_partition
        self.weight = Parameter(torch.Tensor(self.per_partition, embedding_dim))
        init.xavier_normal_(self.weight)

    def forward(self, input_: torch.Tensor) -> torch.Tensor:
        input_mask = (input_ < self.vocab_start_index) | (input_ >= self.vocab_end_index)
        masked_input = input_.clone() - self.vocab_start_index
        masked_input[input_mask] = 0
        output_parallel = F.embedding(masked_input, self.weight)
        output_parallel[input_mask, :] = 0.0
        return reduce_from_model_parallel_region(output_parallel)


class ParallelEmbedding(torch.nn.Module):
    """Split along the embedding dim: every rank looks all ids up in its columns."""

    def __init__(self, num_embeddings: int, embedding_dim: int):
        super().__init__()
        per_partition = divide_and_check_no_remainder(embedding_dim, get_model_parallel_world_size())
        self.weight = Parameter(torch.Tensor(num_embeddings, per_partition))
        init.xavier_normal_(self.weight)

    def forward(self, input_: torch.Tensor) -> torch.Tensor:
        input_parallel = copy_to_model_parallel_region(input_)
        return gather_from_model_parallel_region(F.embedding(input_parallel, self.weight))


class ColumnParallelLinear(torch.nn.Module):
    def __init__(self, in_features: int, out_features: int, bias: bool = True, gather_output: bool = True):
        super().__init__()
        self.gather_output = gather_output
        per_partition = divide_and_check_no_remainder(out_features, get_model_parallel_world_size())
        self.weight = Parameter(torch.Tensor(per_partition, in_features))
        if bias:
            self.bias = Parameter(torch.Tensor(per_partition))
            with torch.no_grad():
                self.bias.zero_()
        else:
            self.register_parameter("bias", None)

    def forward(self, input_: torch.Tensor) -> torch.Tensor:
        input_parallel = copy_to_model_parallel_region(input_)
        output_parallel = F.linear(input_parallel, self.weight, self.bias)
        if self.gather_output:
            return gather_from_model_parallel_region(output_parallel)
        return output_parallel


class RowParallelLinear(torch.nn.Module):
    def __init__(self, in_features: int, out_features: int, bias: bool = True, input_is_parallel: bool = False):
        super().__init__()
        self.input_is_parallel = input_is_parallel
        per_partition = divide_and_check_no_remainder(in_features, get_model_parallel_world_size())
        self.weight = Parameter(torch.Tensor(out_features, per_partition))
        if bias:
            self.bias = Parameter(torch.zeros(out_features))
        else:
            self.register_parameter("bias", None)

    def forward(self, input_: torch.Tensor) -> torch.Tensor:
        input_parallel = input_ if self.input_is_parallel else scatter_to_model_parallel_region(input_)
        output = reduce_from_model_parallel_region(F.linear(input_parallel, self.weight))
        return output + self.bias if self.bias is not None else output


class FeedForward(torch.nn.Module):
    def __init__(self, dim: int, hidden_dim: int):
        super().__init__()
        self.w1 = ColumnParallelLinear(dim, hidden_dim, bias=False, gather_output=False)
        self.w2 = RowParallelLinear(hidden_dim, dim, bias=False, input_is_parallel=True)
        self.w3 = ColumnParallelLinear(dim, hidden_dim, bias=False, gather_output=False)

    def forward(self, x):
        return self.w2(F.silu(self.w1(x)) * self.w3(x))


class Transformer(torch.nn.Module):
    def __init__(self, vocab: int, dim: int, hidden_dim: int, layers: int):
        super().__init__()
        self.tok_embeddings = ParallelEmbedding(vocab, dim)
        self.layers = torch.nn.ModuleList([FeedForward(dim, hidden_dim) for _ in range(layers)])
        self.norm = torch.nn.LayerNorm(dim)
        self.output = ColumnParallelLinear(dim, vocab, bias=False)

    @torch.inference_mode()
    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        h = self.tok_embeddings(tokens)
        for layer in self.layers:
            h = h + layer(h)
        return self.output(self.norm(h)[:, -1, :]).float()
