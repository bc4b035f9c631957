"""Parameters that are whole on all ranks of the tensor-parallel group are tied there; with reduce-scatter their gradients are summed."""

import torch
from nanotron import distributed as dist
from nanotron.parallel import ParallelContext
from nanotron.parallel.parameters import NanotronParameter
from nanotron.parallel.tensor_parallel.enum import TensorParallelLinearMode
from nanotron.parallel.tensor_parallel.nn import TensorParallelColumnLinear, TensorParallelRowLinear
from nanotron.parallel.tied_parameters import create_tied_parameter
from torch import nn


class RMSNorm(nn.Module):
    def __init__(self, hidden_size, eps):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(hidden_size))
        self.variance_epsilon = eps

    def forward(self, x):
        dtype = x.dtype
        x = x.float()
        x = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.variance_epsilon)
        return self.weight * x.to(dtype)


class DecoderLayer(nn.Module):
    def __init__(self, config, parallel_config, tp_pg):
        super().__init__()
        mode = parallel_config.tp_mode
        self.input_layernorm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.up = TensorParallelColumnLinear(config.hidden_size, config.intermediate_size, pg=tp_pg, mode=mode, bias=False)
        self.down = TensorParallelRowLinear(config.intermediate_size, config.hidden_size, pg=tp_pg, mode=mode, bias=False)

    def forward(self, hidden_states):
        residual = hidden_states
        hidden_states = self.input_layernorm(hidden_states)
        return residual + self.down(nn.functional.silu(self.up(hidden_states)))


def tie_replicated(model, parallel_context: ParallelContext, parallel_config):
    ranks = tuple(sorted(dist.get_global_ranks(parallel_context.tp_pg)))
    for module_name, module in model.named_modules():
        for param_name, param in list(module.named_parameters(recurse=False)):
            if isinstance(param, NanotronParameter) and (param.is_sharded or param.is_tied):
                continue
            name = f"{module_name}.{param_name}"
            # In reduce-scatter mode a norm sees a part of the sequence. Otherwise gradients are equal already.
            reduce_op = dist.ReduceOp.SUM if parallel_config.tp_mode is TensorParallelLinearMode.REDUCE_SCATTER else None
            new = create_tied_parameter(
                parameter=param, name=name, global_ranks=ranks, reduce_op=reduce_op, root_module=model
            )
            setattr(module, param_name, new)
