"""A plan for a mixture of experts: the gate keeps whole weights, and its scores come out with a partial gradient, as experts are split."""

from functools import partial

import torch.nn as nn
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_module
from torch.distributed.tensor.parallel import (
    ParallelStyle,
    PrepareModuleInputOutput,
    SequenceParallel,
    parallelize_module,
)


class NoParallel(ParallelStyle):
    """Parameters become replicated DTensors; the output may become local."""

    def __init__(self, *, input_layout=None, output_layout=None, local_output_grad_placements=None):
        super().__init__()
        self.input_layout = input_layout or Replicate()
        self.output_layout = output_layout or Replicate()
        self.local_output_grad_placements = local_output_grad_placements

    @staticmethod
    def _prepare_input_fn(input_layout, mod, inputs, device_mesh):
        x = inputs[0]
        if not isinstance(x, DTensor):
            x = DTensor.from_local(x, device_mesh, (input_layout,), run_check=False)
        return (x, *inputs[1:])

    @staticmethod
    def _prepare_output_fn(output_layout, grad_placements, mod, outputs, device_mesh):
        if outputs.placements != (output_layout,):
            outputs = outputs.redistribute(placements=(output_layout,), async_op=True)
        return outputs.to_local(grad_placements=grad_placements)

    def _apply(self, module: nn.Module, device_mesh):
        return distribute_module(
            module,
            device_mesh,
            None,
            partial(self._prepare_input_fn, self.input_layout),
            partial(self._prepare_output_fn, self.output_layout, self.local_output_grad_placements),
        )


def apply_moe_tp(model, tp_mesh):
    for block in model.layers.values():
        if not block.moe_enabled:
            continue
        plan = {
            "ffn_norm": SequenceParallel(),
            "moe": PrepareModuleInputOutput(
                input_layouts=(Shard(1),),
                desired_input_layouts=(Replicate(),),
                use_local_input=True,
                output_layouts=(Partial(),),
                desired_output_layouts=(Shard(1),),
            ),
            "moe.router.gate": NoParallel(local_output_grad_placements=(Partial(),)),
        }
        parallelize_module(module=block, device_mesh=tp_mesh, parallelize_plan=plan)
