# Megatron-LM 90f39a3bfa (ADLR !3918): calc_params_l2_norm enters the data-parallel all-reduce only on
# ranks that own a shard of some dense parameter; the other ranks skip it (hang or mismatched collective).
import torch
from amp_C import multi_tensor_l2norm
from apex.multi_tensor_apply import multi_tensor_applier

from megatron.core import mpu
from megatron.core.tensor_parallel import param_is_not_tensor_parallel_duplicate
from megatron.legacy.model.module import param_is_not_shared


def calc_params_l2_norm(model):
    """Calculate l2 norm of parameters"""
    if not isinstance(model, list):
        model = [model]

    # Seperate params that this rank holds in full from main params sharded by the distributed optimizer.
    params_data = []
    sharded_params_data = []
    for model_chunk in model:
        for param in model_chunk.parameters():
            if not param_is_not_tensor_parallel_duplicate(param) or not param_is_not_shared(param):
                continue
            if getattr(param, 'main_param_sharded', False):
                # This rank may own nothing of the parameter.
                if param.main_param is not None:
                    sharded_params_data.append(param.main_param)
            else:
                params_data.append(param.data.float())

    dummy_overflow_buf = torch.zeros(1, dtype=torch.int, device='cuda')
    norm_2 = torch.zeros(1, dtype=torch.float32, device='cuda')
    if len(params_data) > 0:
        norm, _ = multi_tensor_applier(multi_tensor_l2norm, dummy_overflow_buf, [params_data], False)
        norm_2 += norm * norm

    # Add norm contribution from params with sharded main_params (sharded jointly over DP and CP).
    dp_cp_group = mpu.get_data_parallel_group(with_context_parallel=True)
    if len(sharded_params_data) > 0:
        sharded_norm, _ = multi_tensor_applier(
            multi_tensor_l2norm, dummy_overflow_buf, [sharded_params_data], False
        )
        sharded_norm_2 = sharded_norm * sharded_norm
        torch.distributed.all_reduce(sharded_norm_2, group=dp_cp_group)  # BUG
        norm_2 += sharded_norm_2

    # Sum across all model-parallel GPUs.
    torch.distributed.all_reduce(norm_2, group=mpu.get_model_parallel_group())
    return norm_2.item() ** 0.5
