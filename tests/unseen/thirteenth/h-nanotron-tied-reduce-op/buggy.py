# Register the tensor-parallel replicas of unsharded parameters of a nanotron model as tied.
from torch import nn

from nanotron import distributed as dist
from nanotron.config.parallelism_config import ParallelismArgs
from nanotron.models.base import NanotronModel
from nanotron.parallel import ParallelContext
from nanotron.parallel.parameters import NanotronParameter
from nanotron.parallel.tensor_parallel.enum import TensorParallelLinearMode
from nanotron.parallel.tensor_parallel.nn import TensorParallelRowLinear
from nanotron.parallel.tied_parameters import tie_parameters


def is_row_bias(module, name):
    # only the first tensor-parallel rank has it
    return isinstance(module, TensorParallelRowLinear) and name == "bias"


def mark_unsharded_params_as_tied_across_tp(
    model: NanotronModel, parallel_context: ParallelContext, parallel_config: ParallelismArgs
):
    # norms run on the sequence shard when tp_mode is REDUCE_SCATTER
    assert parallel_config.tp_mode in (
        TensorParallelLinearMode.ALL_REDUCE,
        TensorParallelLinearMode.REDUCE_SCATTER,
    )
    tp_ranks = tuple(sorted(dist.get_process_group_ranks(parallel_context.tp_pg)))
    for module_name, module in model.named_modules():
        for param_name, param in module.named_parameters(recurse=False):
            name = f"{module_name}.{param_name}"
            if isinstance(param, NanotronParameter) and param.is_sharded:
                continue
            if is_row_bias(module, param_name):
                continue
            tie_parameters(
                root_module=model,
                ties=[(name, tp_ranks)],
                parallel_context=parallel_context,
                reduce_op=None,  # BUG
            )
