"""Tie replicated parameters across tensor parallelism (nanotron)."""
from nanotron import distributed as dist
from nanotron.nn.layer_norm import TritonRMSNorm
from nanotron.parallel import ParallelContext
from nanotron.parallel.parameters import NanotronParameter
from nanotron.parallel.tensor_parallel.enum import TensorParallelLinearMode
from nanotron.parallel.tied_parameters import tie_parameters


def mark_unsharded_params_as_tied_across_tp(model, parallel_context: ParallelContext, parallel_config):
    """With tp_mode REDUCE_SCATTER the norms work on a slice of the sequence."""
    for module_name, module in model.named_modules():
        if not isinstance(module, TritonRMSNorm):
            continue
        for param_name, param in module.named_parameters(recurse=False):
            name = f"{module_name}.{param_name}"
            if isinstance(param, NanotronParameter) and (param.is_tied or param.is_sharded):
                continue
            shared_weights = [
                (name, tuple(sorted(dist.get_process_group_ranks(parallel_context.tp_pg))))
            ]
            tie_parameters(
                root_module=model,
                ties=shared_weights,
                parallel_context=parallel_context,
                reduce_op=(
                    None
                    if parallel_config.tp_mode is TensorParallelLinearMode.ALL_REDUCE
                    else dist.ReduceOp.SUM
                ),
            )
