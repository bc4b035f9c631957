"""Split the parameters of a GPT model into groups for the layer-wise distributed optimizer.

NVIDIA/Megatron-LM dd7caa0df49c, megatron/core/optimizer/layer_wise_optimizer.py
"""
import re

import torch
from megatron.core import parallel_state


class SequentialExperts(torch.nn.Module):
    def __init__(self, config, num_local_experts):
        super().__init__()
        self.linear_fc = torch.nn.ModuleList(
            torch.nn.Linear(config.hidden_size, config.hidden_size, bias=False) for _ in range(num_local_experts)
        )
        expert_parallel = config.expert_model_parallel_size > 1
        for param in self.parameters():
            setattr(param, "allreduce", not expert_parallel)


def default_params_group_func(mcore_te_model):
    module = mcore_te_model
    while hasattr(module, "module"):
        module = module.module

    attn_linear_params_list = []
    mlp_linear_params_list = []
    norm_params_list = []
    for name, param in module.decoder.named_parameters():
        # not all of the parameters have the "allreduce" attribute patched
        is_ep_mlp = getattr(param, "allreduce", False)  # BUG
        if "norm" not in name and re.search(r".weight(\d*)$", name):
            if not is_ep_mlp:
                attn_linear_params_list.append(param)
            else:
                mlp_linear_params_list.append(param)
        elif "norm" in name:
            norm_params_list.append(param)
        else:
            raise ValueError(f"Unsupported parameter: {name}")
    return attn_linear_params_list, mlp_linear_params_list, norm_params_list


def broadcast_params(dense_params, expert_params):
    """Each rank of the group updates its share of the parameters and sends them to the others."""
    for params, group in (
        (dense_params, parallel_state.get_data_parallel_group(with_context_parallel=True)),
        (expert_params, parallel_state.get_expert_data_parallel_group()),
    ):
        world_size = torch.distributed.get_world_size(group)
        for i, param in enumerate(params):
            src = torch.distributed.get_global_rank(group, i % world_size)
            torch.distributed.broadcast(param.data, src, group=group)
