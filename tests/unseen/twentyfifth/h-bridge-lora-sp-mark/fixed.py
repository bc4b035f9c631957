# ModelScope mcore-bridge PR #173: the replicated LoRA factor sees only the sequence shard of its TP rank but
# is not marked sequence_parallel, so finalize_model_grads never sums its gradient over TP.
from megatron.core.extensions.transformer_engine import (TEColumnParallelLinear, TELinear, TERowParallelLinear)
from megatron.core.parallel_state import get_tensor_model_parallel_world_size
from megatron.core.transformer.module import MegatronModule
from peft.tuners.lora.layer import LoraLayer


def _build_local_te_linear(input_size: int, output_size: int, config, **kwargs):
    """A linear held whole by every tensor-parallel rank and applied to that rank's input as it is."""
    lora = TELinear(
        input_size=input_size,
        output_size=output_size,
        bias=False,
        parallel_mode=None,
        skip_weight_param_allocation=False,
        config=config,
        **kwargs,
    )
    lora.weight.sequence_parallel = config.sequence_parallel
    return lora


class LoraParallelLinear(MegatronModule, LoraLayer):

    def __init__(self, base_layer, adapter_name: str, r: int, lora_alpha: int):
        super().__init__(config=base_layer.config)
        LoraLayer.__init__(self, base_layer=base_layer)
        self.is_parallel_a = isinstance(base_layer, TERowParallelLinear)
        self.tp_size = get_tensor_model_parallel_world_size()
        self.update_layer(adapter_name, r, lora_alpha)

    def update_layer(self, adapter_name, r, lora_alpha):
        kwargs = {'skip_bias_add': False, 'init_method': self.config.init_method, 'is_expert': False}
        if self.is_parallel_a:
            # Reduce-scatters its output along the sequence.
            lora_a = TERowParallelLinear(
                input_size=self.in_features * self.tp_size,
                output_size=r,
                bias=False,
                input_is_parallel=True,
                config=self.config,
                **kwargs)
            lora_b = _build_local_te_linear(r, self.out_features, self.config, **kwargs)
        else:
            lora_a = _build_local_te_linear(self.in_features, r, self.config, **kwargs)
            # Gathers its input along the sequence.
            lora_b = TEColumnParallelLinear(
                input_size=r,
                output_size=self.out_features * self.tp_size,
                bias=False,
                gather_output=False,
                config=self.config,
                **kwargs)
        self.lora_A[adapter_name] = lora_a
        self.lora_B[adapter_name] = lora_b
        self.scaling[adapter_name] = lora_alpha / r

    def forward(self, x):
        # x: sequence shard for a column-parallel base layer, feature shard for a row-parallel one
        result, bias = self.base_layer(x)
        for name in self.active_adapters:
            hidden, _ = self.lora_A[name](x)
            delta, _ = self.lora_B[name](hidden)
            result = result + delta * self.scaling[name]
        return result, bias
