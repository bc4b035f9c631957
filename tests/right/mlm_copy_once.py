"""One copy before three column-parallel projections, which are told not to reduce by themselves."""
import torch
from megatron.core import parallel_state
from megatron.core.tensor_parallel import (
    ColumnParallelLinear,
    RowParallelLinear,
    copy_to_tensor_model_parallel_region,
)
from megatron.core.transformer.module import MegatronModule


class SelfAttention(MegatronModule):
    def __init__(self, config):
        super().__init__(config=config)
        assert not config.sequence_parallel
        tp = parallel_state.get_tensor_model_parallel_world_size()
        self.heads = config.num_attention_heads // tp
        common = dict(config=config, init_method=config.init_method, bias=False, gather_output=False)
        self.q = ColumnParallelLinear(config.hidden_size, config.hidden_size, disable_grad_reduce=True, **common)
        self.k = ColumnParallelLinear(config.hidden_size, config.hidden_size, disable_grad_reduce=True, **common)
        self.v = ColumnParallelLinear(config.hidden_size, config.hidden_size, disable_grad_reduce=True, **common)
        self.proj = RowParallelLinear(
            config.hidden_size,
            config.hidden_size,
            config=config,
            init_method=config.output_layer_init_method,
            bias=False,
            input_is_parallel=True,
            skip_bias_add=False,
        )

    def forward(self, x):
        x = copy_to_tensor_model_parallel_region(x)
        q, k, v = (layer(x)[0].unflatten(-1, (self.heads, -1)) for layer in (self.q, self.k, self.v))
        q, k, v = (t.permute(1, 2, 0, 3) for t in (q, k, v))
        o = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        o = o.permute(2, 0, 1, 3).flatten(2)
        return self.proj(o)[0]
