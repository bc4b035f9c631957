"""The norm of a projection in two steps lies between them, where every rank has all of it."""

from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_module
from torch.distributed.tensor.parallel import ColwiseParallel, ParallelStyle, RowwiseParallel, parallelize_module


class Whole(ParallelStyle):
    @staticmethod
    def _prepare_input_fn(mod, inputs, mesh):
        return DTensor.from_local(inputs[0], mesh, (Replicate(),), run_check=False)

    @staticmethod
    def _prepare_output_fn(mod, outputs, mesh):
        return outputs.to_local()

    def _apply(self, module, mesh):
        return distribute_module(module, mesh, None, self._prepare_input_fn, self._prepare_output_fn)


def apply_tp(block, tp_mesh):
    plan = {
        "attention.wq_a": Whole(),
        "attention.q_norm": Whole(),
        "attention.wq_b": ColwiseParallel(),
        "attention.wq": ColwiseParallel(),
        "attention.wo": RowwiseParallel(output_layouts=Shard(1)),
    }
    parallelize_module(block, tp_mesh, plan)
