"""Keep norms in front of column-parallel projections in step over TP."""
import torch
import torch.distributed as dist
from megatron.core.tensor_parallel import ColumnParallelLinear, RowParallelLinear


class Block(torch.nn.Module):
    def __init__(self, hidden, up: ColumnParallelLinear, down: RowParallelLinear, config):
        super().__init__()
        assert not config.sequence_parallel
        self.norm = torch.nn.LayerNorm(hidden)
        self.up, self.down = up, down

    def forward(self, x):
        # x: the same on every TP rank
        h, _ = self.up(self.norm(x))  # the projection sums the gradient of its input
        return x + self.down(torch.nn.functional.gelu(h))[0]


def sync_norms(model, tp_group):
    for m in model.modules():
        if isinstance(m, torch.nn.LayerNorm):
            for p in m.parameters():
                dist.all_reduce(p.grad, op=dist.ReduceOp.AVG, group=tp_group)
