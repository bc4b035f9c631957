"""Transformer-Engine linear used for experts, and the norm over its gradients."""
# thread: NVIDIA/Megatron-LM#5916
import torch
import transformer_engine as te

from megatron.core.tensor_parallel.layers import param_is_not_tensor_parallel_duplicate
from megatron.core.transformer.utils import divide


class TELinear(te.pytorch.Linear):
    def __init__(self, input_size, output_size, *, parallel_mode, config, is_expert, pg_collection):
        self.config = config
        tp_group = pg_collection.expt_tp if is_expert else pg_collection.tp
        tp_size = tp_group.size()
        use_expert_pgs = is_expert and (
            config.expert_model_parallel_size > 1
            or config.expert_tensor_parallel_size != config.tensor_model_parallel_size
        )
        partition_dim = {"column": 0, "row": 1}.get(parallel_mode)
        if is_expert and (tp_size > 1 or config.expert_model_parallel_size > 1):
            # the token dispatcher communicates, the layer only sees its shard
            if parallel_mode == "column":
                output_size = divide(output_size, tp_size)
            elif parallel_mode == "row":
                input_size = divide(input_size, tp_size)
            parallel_mode, tp_size, tp_group = None, 1, None

        super().__init__(
            input_size,
            output_size,
            bias=False,
            parallel_mode=parallel_mode,
            tp_group=tp_group,
            tp_size=tp_size,
            params_dtype=config.params_dtype,
        )
        for param in self.parameters():
            setattr(param, "allreduce", not use_expert_pgs)
            if is_expert and partition_dim is not None:
                setattr(param, "tensor_model_parallel", True)
                setattr(param, "partition_dim", partition_dim)


def get_main_grads_for_grad_norm(params, pg_collection):
    grads = []
    for param in params:
        tp_group = pg_collection.tp if getattr(param, "allreduce", True) else pg_collection.expt_tp
        if param.main_grad is not None and param_is_not_tensor_parallel_duplicate(param, tp_group):
            grads.append(param.main_grad)
    return grads


def get_grad_norm(params, pg_collection):
    dense = [p for p in params if getattr(p, "allreduce", True)]
    expert = [p for p in params if not getattr(p, "allreduce", True)]
    total = torch.zeros(1, dtype=torch.float32, device="cuda")
    for group, subset in ((pg_collection.mp, dense), (pg_collection.tp_ep_pp, expert)):
        part = torch.zeros(1, dtype=torch.float32, device="cuda")
        for grad in get_main_grads_for_grad_norm(subset, pg_collection):
            part += grad.float().norm() ** 2
        torch.distributed.all_reduce(part, group=group)
        total += part
    return total.sqrt()
