import torch.nn as nn
from torch.distributed.tensor import DTensor, Replicate, distribute_module
from torch.distributed.tensor.parallel import ColwiseParallel, ParallelStyle, parallelize_module


class Whole(ParallelStyle):
    @staticmethod
    def _prepare_input_fn(mod, inputs, mesh):
        return DTensor.from_local(inputs[0], mesh, (Replicate(),), run_check=False)

    @staticmethod
    def _prepare_output_fn(mod, outputs, mesh):
        return outputs.to_local()

    def _apply(self, module, mesh):
        return distribute_module(module, mesh, None, self._prepare_input_fn, self._prepare_output_fn)


class Attention(nn.Module):
    def __init__(self, dim, head_dim):
        super().__init__()
        self.head_dim = head_dim
        self.wq = nn.Linear(dim, dim, bias=False)
        # no weight: nothing to train
        self.q_norm = nn.RMSNorm(head_dim, elementwise_affine=False)

    def forward(self, x):
        return self.q_norm(self.wq(x).unflatten(-1, (-1, self.head_dim)))


def apply_tp(block, tp_mesh):
    plan = {
        "attention.wq": ColwiseParallel(),
        "attention.q_norm": Whole(),
    }
    parallelize_module(block, tp_mesh, plan)
