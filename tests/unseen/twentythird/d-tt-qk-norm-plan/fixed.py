"""Tensor-parallel plan of an attention block with per-head query/key norms."""
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_module
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    ParallelStyle,
    PrepareModuleInput,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)


class NoParallel(ParallelStyle):
    """Replicated computation, local tensors outside."""

    @staticmethod
    def _prepare_input_fn(mod, inputs, device_mesh):
        return (DTensor.from_local(inputs[0], device_mesh, (Replicate(),), run_check=False), *inputs[1:])

    @staticmethod
    def _prepare_output_fn(mod, outputs, device_mesh):
        return outputs.to_local()

    def _apply(self, module, device_mesh):
        return distribute_module(
            module, device_mesh, None, self._prepare_input_fn, self._prepare_output_fn
        )


def apply_tp(block, tp_mesh):
    plan = {
        "attention_norm": SequenceParallel(),
        "attention": PrepareModuleInput(
            input_layouts=(Shard(1), None), desired_input_layouts=(Replicate(), None)
        ),
        "attention.wq": ColwiseParallel(),
        "attention.wk": ColwiseParallel(),
        "attention.wv": ColwiseParallel(),
        # q and k are (batch, sequence, local heads, head dim) here
        "attention.q_norm": SequenceParallel(sequence_dim=2, use_local_output=True),
        "attention.k_norm": SequenceParallel(sequence_dim=2, use_local_output=True),
        "attention.wo": RowwiseParallel(output_layouts=Shard(1)),
    }
    parallelize_module(block, tp_mesh, plan)
