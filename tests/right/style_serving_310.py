import torch
from torch.distributed.tensor import DTensor, Partial, Replicate, distribute_module
from torch.distributed.tensor.parallel import ParallelStyle


class RowwiseForServing(ParallelStyle):
    def _prepare_input_fn(self, mod, inputs, device_mesh):
        hidden = inputs[0]
        return DTensor.from_local(hidden, device_mesh, (Replicate(),)).to_local()

    def _prepare_output_fn(self, mod, outputs, device_mesh):
        return DTensor.from_local(outputs, device_mesh, (Partial(),)).full_tensor()


@torch.inference_mode()
def serve(model, prompts):
    for p in prompts:
        yield model(p)
