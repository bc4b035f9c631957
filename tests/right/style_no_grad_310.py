import torch
from torch.distributed.tensor import DTensor, Partial, Replicate, distribute_module
from torch.distributed.tensor.parallel import ParallelStyle


class FrozenExpertParallel(ParallelStyle):
    """For inference."""

    @torch.no_grad()
    def _prepare_input_fn(self, mod, inputs, device_mesh):
        (x,) = inputs
        x = DTensor.from_local(x, device_mesh, (Replicate(),)).to_local()
        return x

    @torch.no_grad()
    def _prepare_output_fn(self, mod, outputs, device_mesh):
        return DTensor.from_local(outputs, device_mesh, (Partial(),)).full_tensor()
