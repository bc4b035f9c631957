# modelscope/mcore-bridge pull request 173
"""LoRA adapter of a Megatron tensor-parallel linear layer."""
import torch
from torch import nn
from megatron.core.tensor_parallel import ColumnParallelLinear, RowParallelLinear


class LoraParallelLinear(nn.Module):
    def __init__(self, base_layer, in_features, out_features, r, lora_alpha):
        super().__init__()
        self.base_layer, self.config = base_layer, base_layer.config
        self.is_parallel_a = isinstance(base_layer, RowParallelLinear)
        self.sequence_parallel = base_layer.sequence_parallel
        self.scaling = lora_alpha / r
        self.update_layer(in_features, out_features, r)

    def update_layer(self, in_features, out_features, r):
        kwargs = dict(config=self.config, init_method=self.config.init_method, bias=False, skip_bias_add=False)
        if self.is_parallel_a:
            # input features sharded; the output is reduced, or reduce-scattered over the sequence
            lora_a = RowParallelLinear(in_features, r, input_is_parallel=True, **kwargs)
            lora_b = nn.Linear(r, out_features, bias=False)
            replicated = lora_b
            nn.init.zeros_(lora_b.weight)
        else:
            lora_a = nn.Linear(in_features, r, bias=False)
            lora_b = ColumnParallelLinear(r, out_features, gather_output=False, **kwargs)
            replicated = lora_a
            nn.init.zeros_(lora_b.weight)
        for param in replicated.parameters():
            param.tensor_model_parallel = False
            param.sequence_parallel = self.sequence_parallel
        self.lora_A, self.lora_B = lora_a, lora_b

    def forward(self, x):
        result, bias = self.base_layer(x)
        if self.is_parallel_a:
            delta = self.lora_B(self.lora_A(x)[0])
        else:
            delta = self.lora_B(self.lora_A(x))[0]
        return result + delta * self.scaling, bias


def allreduce_sequence_parallel_grads(model, tp_group):
    """Part of finalize_model_grads: parameters that work on a shard of the sequence."""
    for param in model.parameters():
        if param.requires_grad and getattr(param, "sequence_parallel", False):
            torch.distributed.all_reduce(param.main_grad, group=tp_group)
