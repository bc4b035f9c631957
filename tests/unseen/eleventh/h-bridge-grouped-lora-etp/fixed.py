"""LoRA weights of grouped experts and the group which reduces their gradients.

Reduced from NVIDIA-NeMo/Megatron-Bridge c2614aef09 (fix(peft): sync grouped expert LoRA over
expert DP, #5231).
"""
import torch
from megatron.core.tensor_parallel import set_tensor_model_parallel_attributes

# spmd: mesh dense = pp, dp, cp, tp
# spmd: mesh sparse = pp, edp, ep, etp over dense


class GroupedExpertLinearAdapter(torch.nn.Module):
    def __init__(self, num_local_experts, in_features, dim, out_features, pg_collection):
        super().__init__()
        ep_size = pg_collection.ep.size()
        etp_size = pg_collection.expt_tp.size()
        self.linear_in = torch.nn.Parameter(torch.empty(num_local_experts, dim // etp_size, in_features))
        self.linear_out = torch.nn.Parameter(torch.empty(num_local_experts, out_features // etp_size, dim))

        use_expert_process_groups = ep_size > 1 or etp_size != pg_collection.tp.size()
        for weight in (self.linear_in, self.linear_out):
            setattr(weight, "allreduce", not use_expert_process_groups)
            set_tensor_model_parallel_attributes(weight, True, 1, 1)


def reduce_gradients(adapter, pg_collection):
    for param in adapter.parameters():
        group = pg_collection.dp_cp if getattr(param, "allreduce", True) else pg_collection.expt_dp
        param.main_grad.div_(pg_collection.dp_cp.size())
        torch.distributed.all_reduce(param.main_grad, group=group)
