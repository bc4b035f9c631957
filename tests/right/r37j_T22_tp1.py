import torch
import torch.distributed as dist
from megatron.core import parallel_state
from megatron.core.tensor_parallel import ColumnParallelLinear, RowParallelLinear
from megatron.core.tensor_parallel.mappings import gather_from_sequence_parallel_region, scatter_to_sequence_parallel_region


def plain(size_in, size_out):
    return torch.nn.Linear(size_in, size_out, bias=False)


class LoraRow(torch.nn.Module):
    def __init__(self, base, config, rank):
        super().__init__()
        self.base = base
        for p in self.base.parameters():
            p.requires_grad = False
        assert parallel_state.get_tensor_model_parallel_world_size() == 1, "one tp rank"
        self.a = RowParallelLinear(
            base.input_size, rank, config=config, init_method=None, bias=False, input_is_parallel=True, skip_bias_add=True
        )
        self.b = plain(rank, base.output_size)

    def forward(self, x):
        hidden, _ = self.a(x)
        return self.base(x)[0] + self.b(hidden)


class LoraColumn(torch.nn.Module):
    def __init__(self, base, config, rank):
        super().__init__()
        self.base = base
        self.a = plain(base.input_size, rank)
        self.a.weight.sequence_parallel = config.sequence_parallel
        self.b = ColumnParallelLinear(rank, base.output_size, config=config, init_method=None, bias=False)

    def forward(self, x):
        return self.base(x)[0] + self.b(self.a(x))[0]
