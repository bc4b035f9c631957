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


def apply_tp(block, tp_mesh):
    # latent attention: q_norm stands between wq_a and wq
    plan = {
        "attention.q_norm": Whole(),
        "attention.wq": ColwiseParallel(),
        "attention.wo": RowwiseParallel(),
    }
    parallelize_module(block, tp_mesh, plan)
