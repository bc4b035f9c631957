from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_module
from torch.distributed.tensor.parallel import ColwiseParallel, ParallelStyle, RowwiseParallel, SequenceParallel, parallelize_module


class Whole(ParallelStyle):
    @staticmethod
    def _prepare_input_fn(mod, inputs, mesh):
        return DTensor.from_local(inputs[0], mesh, (Replicate(),), run_check=False)

    @staticmethod
    def _prepare_output_fn(mod, outputs, mesh):
        return outputs.to_local()

    def _apply(self, module, mesh):
        return distribute_module(module, mesh, None, self._prepare_input_fn, self._prepare_output_fn)


import torch.nn as nn


class Attention(nn.Module):
    """q_norm is over the latent before `wq`."""

    def __init__(self, dim, latent):
        super().__init__()
        self.wq_a = nn.Linear(dim, latent, bias=False)
        self.q_norm = nn.RMSNorm(latent)
        self.wq = nn.Linear(latent, dim, bias=False)

    def forward(self, x):
        return self.wq(self.q_norm(self.wq_a(x)))


def apply_tp(block, tp_mesh):
    plan = {
        "attention.wq": ColwiseParallel(),
        "attention.q_norm": Whole(),
    }
    parallelize_module(block, tp_mesh, plan)
