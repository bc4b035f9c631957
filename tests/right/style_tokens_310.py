import torch
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_module
from torch.distributed.tensor.parallel import ParallelStyle


class RouterParallel(ParallelStyle):
    """The input is tokens: no gradient."""

    def _prepare_input_fn(self, mod, inputs, device_mesh):
        tokens = inputs[0]
        tokens = DTensor.from_local(tokens, device_mesh, (Replicate(),)).to_local()
        return tokens

    def _prepare_output_fn(self, mod, outputs, device_mesh):
        out = DTensor.from_local(outputs, device_mesh, (Partial(),))
        return out.redistribute(placements=(Replicate(),)).to_local()

    def _apply(self, module, device_mesh):
        return distribute_module(module, device_mesh, None, self._prepare_input_fn, self._prepare_output_fn)


class VocabParallelEmbedding(ParallelStyle):
    def _prepare_input_fn(self, mod, inputs, device_mesh):
        x = inputs[0]
        x = DTensor.from_local(x, device_mesh, (Replicate(),), run_check=False)
        return x.to_local()

    def _prepare_output_fn(self, mod, outputs, device_mesh):
        return DTensor.from_local(outputs, device_mesh, (Partial(),)).redistribute(placements=(Shard(1),)).to_local()
