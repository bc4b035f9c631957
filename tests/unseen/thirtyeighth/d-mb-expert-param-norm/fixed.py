"""L2 norm of all parameters for the training log."""
# thread: NVIDIA-NeMo/Megatron-Bridge#4998
import torch
from megatron.core.tensor_parallel import param_is_not_tensor_parallel_duplicate

try:
    from transformer_engine.pytorch.optimizers import multi_tensor_applier, multi_tensor_l2norm
except ImportError:
    multi_tensor_applier = None


def _sum_of_squares(tensors):
    if len(tensors) == 0:
        return torch.zeros((1,), dtype=torch.float32, device="cuda")
    if multi_tensor_applier is not None:
        dummy = torch.zeros((1,), dtype=torch.int32, device="cuda")
        norm, _ = multi_tensor_applier(multi_tensor_l2norm, dummy, [tensors], False)
        return norm * norm
    return sum(t.float().norm() ** 2 for t in tensors).reshape(1)


def calc_params_l2_norm(model, pg_collection, use_distributed_optimizer=True):
    """With the distributed optimizer ``param.main_param`` is this rank's shard of the fp32 copy:
    dense parameters are sharded over DP x CP, expert parameters over expert DP."""
    params = {"dense": [], "expert": []}
    sharded = {"dense": [], "expert": []}
    for model_chunk in model:
        for param in model_chunk.parameters():
            kind = "dense" if getattr(param, "allreduce", True) else "expert"
            tp_group = pg_collection.tp if kind == "dense" else pg_collection.expt_tp
            if getattr(param, "shared", False):
                continue
            if not param_is_not_tensor_parallel_duplicate(param, tp_group):
                continue
            if use_distributed_optimizer:
                if getattr(param, "main_param", None) is not None:
                    sharded[kind].append(param.main_param)
            else:
                params[kind].append(param.detach().float())

    dense_norm_2 = _sum_of_squares(params["dense"])
    expert_norm_2 = _sum_of_squares(params["expert"])
    if use_distributed_optimizer:
        sharded_dense_2 = _sum_of_squares(sharded["dense"])
        torch.distributed.all_reduce(sharded_dense_2, group=pg_collection.dp_cp)
        dense_norm_2 += sharded_dense_2

        sharded_expert_2 = _sum_of_squares(sharded["expert"])
        torch.distributed.all_reduce(sharded_expert_2, group=pg_collection.expt_dp)
        expert_norm_2 += sharded_expert_2

    torch.distributed.all_reduce(dense_norm_2, group=pg_collection.mp)
    torch.distributed.all_reduce(expert_norm_2, group=pg_collection.tp_ep_pp)
    return (dense_norm_2 + expert_norm_2).item() ** 0.5
