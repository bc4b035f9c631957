"""Mark expert weights so that they are reduced over the expert-data-parallel group."""
# NVIDIA/Megatron-LM PR 5916: with ep = 1 and expert_tensor_parallel_size != tensor_model_parallel_size the mark was not set.
import torch
import torch.nn.functional as F
from megatron.core import parallel_state


class GroupedMLP(torch.nn.Module):
    def __init__(self, num_local_experts, config):
        super().__init__()
        self.config = config
        etp = parallel_state.get_expert_tensor_parallel_world_size()
        self.expert_parallel = config.expert_model_parallel_size > 1
        ffn = config.moe_ffn_hidden_size // etp
        self.weight1 = torch.nn.Parameter(torch.empty(num_local_experts, config.hidden_size, ffn))
        self.weight2 = torch.nn.Parameter(torch.empty(num_local_experts, ffn, config.hidden_size))
        for weight in (self.weight1, self.weight2):
            setattr(weight, "allreduce", False)

    def forward(self, permuted, tokens_per_expert):
        out = []
        for i, x in enumerate(torch.split(permuted, tokens_per_expert.tolist())):
            out.append(F.gelu(x @ self.weight1[i]) @ self.weight2[i])
        return torch.cat(out)


class DistributedDataParallel(torch.nn.Module):
    def __init__(self, module):
        super().__init__()
        self.module = module
        self.dense_params, self.expert_params = [], []
        for param in self.module.parameters():
            if getattr(param, "allreduce", True):
                self.dense_params.append(param)
            else:
                self.expert_params.append(param)
        self.dp_group = parallel_state.get_data_parallel_group(with_context_parallel=True)
        self.expert_dp_group = parallel_state.get_expert_data_parallel_group()

    def forward(self, *args):
        return self.module(*args)

    def finish_grad_sync(self):
        scale = 1.0 / self.dp_group.size()
        for param in self.dense_params:
            param.main_grad.mul_(scale)
            torch.distributed.all_reduce(param.main_grad, group=self.dp_group)
        for param in self.expert_params:
            param.main_grad.mul_(scale)
            torch.distributed.all_reduce(param.main_grad, group=self.expert_dp_group)
