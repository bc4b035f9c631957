import torch
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_module
from torch.distributed.tensor.parallel import ParallelStyle


class Style(ParallelStyle):
    def _prepare_input_fn(self, mod, inputs, device_mesh):
        x, cos_sin, attention_bias = inputs
        x = DTensor.from_local(x, device_mesh, (Shard(1),)).redistribute(placements=(Replicate(),)).to_local(
            grad_placements=(Partial(),)
        )
        return x, cos_sin, attention_bias

    def _prepare_output_fn(self, mod, outputs, device_mesh):
        return DTensor.from_local(outputs, device_mesh, (Partial(),)).redistribute(placements=(Shard(1),)).to_local()


class Rope(ParallelStyle):
    def _prepare_input_fn(self, mod, inputs, device_mesh):
        x, freqs_cis = inputs
        freqs_cis = DTensor.from_local(freqs_cis, device_mesh, (Replicate(),)).to_local()
        return x, freqs_cis

    def _prepare_output_fn(self, mod, outputs, device_mesh):
        return DTensor.from_local(outputs, device_mesh, (Partial(),)).redistribute(placements=(Shard(1),)).to_local()
