"""Tensor parallelism for grouped experts that compute on plain tensors."""
import torch.nn as nn
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_module, distribute_tensor
from torch.distributed.tensor.parallel import ParallelStyle


class TensorParallel(ParallelStyle):
    def _prepare_input_fn(self, mod, inputs, device_mesh):
        routed_input, num_tokens_per_expert = inputs
        routed_input = DTensor.from_local(routed_input, device_mesh, (Replicate(),), run_check=False)
        routed_input = routed_input.to_local()  # BUG: sharded weights give a Partial gradient
        return routed_input, num_tokens_per_expert

    def _partition_fn(self, name, module, device_mesh):
        # w1, w3: [experts, hidden, dim], w2: [experts, dim, hidden]
        for key, dim in (("w1", 1), ("w2", 2), ("w3", 1)):
            param = getattr(module, key)
            module.register_parameter(key, nn.Parameter(distribute_tensor(param, device_mesh, [Shard(dim)])))

    def _apply(self, module, device_mesh):
        return distribute_module(module, device_mesh, self._partition_fn, self._prepare_input_fn)
