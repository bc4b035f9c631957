"""Every backward pass sums, or what the rounds without the flag leave is dropped."""
import torch.distributed as dist
import torch.nn as nn


class Norm(nn.Module):
    """A norm behind a sequence-parallel region: its gradient is a part on each tensor-parallel rank."""

    def __init__(self, dim, tp_group, sequence_parallel):
        super().__init__()
        self.inner = nn.LayerNorm(dim)
        self.tp_group = tp_group
        self.reduce_over_tp = sequence_parallel and dist.get_world_size(tp_group) > 1
        for p in self.inner.parameters():
            p.register_hook(self._sum)

    def _sum(self, grad):
        if self.reduce_over_tp:
            dist.all_reduce(grad, group=self.tp_group)
        return grad

    def forward(self, x):
        return self.inner(x)


class Block(nn.Module):
    def __init__(self, dim, tp_group, sequence_parallel):
        super().__init__()
        self.norm = Norm(dim, tp_group, sequence_parallel)
        self.mlp = nn.Linear(dim, dim)

    def without_sequence_parallel(self):
        # for inference with sequences of any length: activations are whole on each rank from now on
        self.norm.reduce_over_tp = False

    def forward(self, x):
        return x + self.mlp(self.norm(x))
