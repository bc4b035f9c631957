"""Reduce layer-norm gradients under sequence parallelism."""
import torch
from megatron.core import parallel_state


class FusedLayerNorm(torch.nn.LayerNorm):
    def __init__(self, hidden_size, eps=1e-5, sequence_parallel=False):
        super().__init__(hidden_size, eps=eps)
        setattr(self.weight, "sequence_parallel", sequence_parallel)
        setattr(self.bias, "sequence_parallel", sequence_parallel)


class TransformerLayer(torch.nn.Module):
    def __init__(self, hidden_size, mlp):
        super().__init__()
        self.input_layernorm, self.mlp = FusedLayerNorm(hidden_size, sequence_parallel=True), mlp

    def forward(self, x):
        # x: [s/tp, b, h]
        return x + self.mlp(self.input_layernorm(x))


class MegatronGPTModel:
    def allreduce_sequence_parallel_gradients(self, module):
        grads = []
        for param in module.parameters():
            if getattr(param, "sequence_parallel", False):
                grads.append(param.grad.data)
        coalesced = torch._utils._flatten_dense_tensors(grads)
        torch.distributed.all_reduce(coalesced, group=parallel_state.get_tensor_model_parallel_group())
        for buf, synced in zip(grads, torch._utils._unflatten_dense_tensors(coalesced, grads)):
            buf.copy_(synced)
