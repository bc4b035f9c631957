import torch
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_module
from torch.distributed.tensor.parallel import ParallelStyle


class RouterStyle(ParallelStyle):
    """The router is the same on every rank; beside it a count of tokens, which is a part on each."""

    def _prepare_input_fn(self, mod, inputs, device_mesh):
        (x,) = inputs
        h = DTensor.from_local(x, device_mesh, (Replicate(),)).to_local()
        return h

    def _prepare_output_fn(self, mod, outputs, device_mesh):
        scores, tokens = outputs
        tokens = DTensor.from_local(tokens, device_mesh, (Partial(),)).full_tensor()
        return scores, tokens
