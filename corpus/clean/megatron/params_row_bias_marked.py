"""Two row-parallel layers: the bias is marked where the output is a sequence shard; one layer hands the bias on to a fused add."""

import torch
from megatron.core import parallel_state
from megatron.core.tensor_parallel import (
    reduce_from_tensor_model_parallel_region,
    reduce_scatter_to_sequence_parallel_region,
    set_tensor_model_parallel_attributes,
)
from megatron.core.utils import divide


class RowParallelLinear(torch.nn.Module):
    def __init__(self, input_size, output_size, *, config, init_method, bias=True, skip_bias_add=False):
        super().__init__()
        self.skip_bias_add = skip_bias_add
        self.sequence_parallel = config.sequence_parallel
        world_size = parallel_state.get_tensor_model_parallel_world_size()
        self.weight = torch.nn.Parameter(torch.empty(output_size, divide(input_size, world_size)))
        set_tensor_model_parallel_attributes(tensor=self.weight, is_parallel=True, dim=1, stride=1)
        init_method(self.weight)
        if bias:
            self.bias = torch.nn.Parameter(torch.empty(output_size))
            with torch.no_grad():
                self.bias.zero_()
            # The bias is added to a part of the sequence: the finaliser sums it.
            setattr(self.bias, "sequence_parallel", self.sequence_parallel)
        else:
            self.register_parameter("bias", None)

    def forward(self, input_parallel):
        output_parallel = torch.matmul(input_parallel, self.weight.t())
        if self.sequence_parallel:
            output_ = reduce_scatter_to_sequence_parallel_region(output_parallel)
        else:
            output_ = reduce_from_tensor_model_parallel_region(output_parallel)
        if self.skip_bias_add:
            return output_, self.bias
        return (output_ + self.bias if self.bias is not None else output_), None


class BiasDropoutAdd(torch.nn.Module):
    def __init__(self, config, inner):
        super().__init__()
        self.prob = config.hidden_dropout
        self.proj = RowParallelLinear(
            inner, config.hidden_size, config=config, init_method=config.output_layer_init_method, skip_bias_add=True
        )

    def forward(self, x, residual):
        out, bias = self.proj(x)
        return residual + torch.nn.functional.dropout(out + bias, self.prob, self.training)


def finalize(model, config):
    if not config.sequence_parallel or parallel_state.get_tensor_model_parallel_world_size() == 1:
        return
    params = [p for p in model.parameters() if p.requires_grad and getattr(p, "sequence_parallel", False)]
    for param in params:
        torch.distributed.all_reduce(param.main_grad, group=parallel_state.get_tensor_model_parallel_group())
