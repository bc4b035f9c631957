"""The norms of queries and keys are whole on each rank, and their gradients are summed where the input is wrapped."""

from torch.distributed.tensor import DTensor, Partial, Replicate, distribute_module
from torch.distributed.tensor.parallel import ColwiseParallel, ParallelStyle, RowwiseParallel, parallelize_module


class PerHead(ParallelStyle):
    @staticmethod
    def _hook(mod, args, output, mesh):
        weight = mod.weight.to_local(grad_placements=(Partial(),))
        return args[0] * weight

    def _apply(self, module, mesh):
        module = distribute_module(module, mesh, None, None, None)
        module.register_forward_hook(lambda mod, args, output: self._hook(mod, args, output, mesh))
        return module


def replicated(x, mesh):
    return DTensor.from_local(x, mesh, (Replicate(),), run_check=False)


def apply_tp(block, tp_mesh):
    plan = {
        "attention.wq": ColwiseParallel(),
        "attention.wk": ColwiseParallel(),
        "attention.q_norm": PerHead(),
        "attention.k_norm": PerHead(),
        "attention.wo": RowwiseParallel(),
    }
    parallelize_module(block, tp_mesh, plan)
