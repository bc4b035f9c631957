# mcore-bridge, pull 173: with sequence parallelism the replicated factor of a parallel LoRA sees only the sequence
# shard of its TP rank; its parameters have to be marked sequence_parallel, so that their gradients are summed over TP.
"""LoRA of a row-parallel linear (linear_proj, linear_fc2)."""
import torch
from megatron.core import mpu
from megatron.core.extensions.transformer_engine import TELinear, TERowParallelLinear
from megatron.core.transformer.module import MegatronModule


class LoraRowParallelLinear(MegatronModule):
    def __init__(self, base_layer: TERowParallelLinear, r: int, lora_alpha: int):
        super().__init__(config=base_layer.config)
        self.base_layer = base_layer
        self.sequence_parallel = base_layer.config.sequence_parallel
        self.scaling = lora_alpha / r
        kwargs = {"skip_bias_add": False, "init_method": self.config.init_method, "config": self.config}
        in_features = base_layer.in_features * mpu.get_tensor_model_parallel_world_size()
        self.lora_A = TERowParallelLinear(in_features, r, bias=False, input_is_parallel=True, is_expert=False, **kwargs)
        self.lora_B = TELinear(  # the full factor on each TP rank
            r, base_layer.out_features, bias=False, parallel_mode=None, skip_weight_param_allocation=False, **kwargs
        )
        for param in self.lora_B.parameters():
            param.sequence_parallel = self.sequence_parallel

    def forward(self, x):
        result, bias = self.base_layer(x)
        lora_result, _ = self.lora_A(x)  # reduce-scattered along the sequence with sequence parallelism
        lora_result, _ = self.lora_B(lora_result)
        return result + lora_result * self.scaling, bias


def allreduce_non_tensor_model_parallel_grads(model, config):
    if not config.sequence_parallel:
        return
    for param in model.parameters():
        if param.requires_grad and getattr(param, "sequence_parallel", False):
            torch.distributed.all_reduce(param.main_grad, group=mpu.get_tensor_model_parallel_group())
