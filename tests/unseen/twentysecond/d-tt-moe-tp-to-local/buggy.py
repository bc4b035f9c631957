"""Tensor-parallel experts that compute on plain tensors (pytorch/torchtitan#1878)."""
from torch import nn
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_module, distribute_tensor
from torch.distributed.tensor.parallel import ParallelStyle


class TensorParallel(ParallelStyle):
    @staticmethod
    def _prepare_input_fn(mod, inputs, device_mesh):
        routed_input, num_tokens_per_expert = inputs
        routed_input = DTensor.from_local(routed_input, device_mesh, (Replicate(),), run_check=False)
        routed_input = routed_input.to_local()  # BUG: the experts are sharded, the gradient is Partial
        return routed_input, num_tokens_per_expert

    @staticmethod
    def _partition_fn(name, module, device_mesh):
        for key, dim in (("w1", 1), ("w2", 2), ("w3", 1)):
            weight = distribute_tensor(getattr(module, key), device_mesh, [Shard(dim)])
            module.register_parameter(key, nn.Parameter(weight))

    @staticmethod
    def _prepare_output_fn(mod, outputs, device_mesh):
        out = DTensor.from_local(outputs, device_mesh, (Partial(),), run_check=False)
        return out.redistribute(placements=(Replicate(),)).to_local()

    def _apply(self, module, device_mesh):
        return distribute_module(
            module, device_mesh, self._partition_fn, self._prepare_input_fn, self._prepare_output_fn
        )
