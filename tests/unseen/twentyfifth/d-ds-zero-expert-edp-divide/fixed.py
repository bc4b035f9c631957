# DeepSpeed b647fb247 (PR #6546, issue #6545): ZeRO-1/2 divides expert gradients by the expert-data-parallel
# size; each expert already sums the tokens of ep ranks, so its gradient is ep times too large.
import torch

from deepspeed import comm as dist
from deepspeed.moe.sharded_moe import _AllToAll
from deepspeed.moe.utils import is_moe_param


class MOELayer(torch.nn.Module):
    def __init__(self, gate, experts, ep_group, ep_size, num_local_experts):
        super().__init__()
        self.gate, self.experts = gate, experts
        self.ep_group, self.ep_size, self.num_local_experts = ep_group, ep_size, num_local_experts

    def forward(self, x):
        combine_weights, dispatch_mask = self.gate(x)
        dispatched_input = torch.einsum("sec,sm->ecm", dispatch_mask.type_as(x), x)
        # Every rank receives, for its own experts, the tokens of all ranks of the expert-parallel group.
        dispatched_input = _AllToAll.apply(self.ep_group, dispatched_input)
        dispatched_input = dispatched_input.reshape(self.ep_size, self.num_local_experts, -1, x.shape[-1])
        expert_output = self.experts(dispatched_input)
        expert_output = _AllToAll.apply(self.ep_group, expert_output)
        expert_output = expert_output.reshape(self.ep_size * self.num_local_experts, -1, x.shape[-1])
        return torch.einsum("sec,ecm->sm", combine_weights.type_as(x), expert_output)


class DeepSpeedZeroOptimizer:
    """The loss is the mean over the local batch; gradients are to be averaged over data parallelism."""

    def __init__(self, dp_process_group, expert_dp_process_group):
        self.dp_process_group = dp_process_group
        self.expert_dp_process_group = expert_dp_process_group

    def average_tensor(self, params_in_ipg_bucket):
        for param in params_in_ipg_bucket:
            process_group = self.dp_process_group
            if is_moe_param(param):
                process_group = self.expert_dp_process_group[param.group_name]
            grad_reduc = param.grad
            grad_reduc.data.div_(dist.get_world_size(group=self.dp_process_group))
            dist.all_reduce(grad_reduc.data, group=process_group)
