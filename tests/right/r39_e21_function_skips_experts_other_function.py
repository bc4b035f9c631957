import torch
import torch.distributed as dist


def reduce_dense(model, dp_group, expert_dp_group=None):
    n = dist.get_world_size(dp_group)
    for name, p in model.named_parameters():
        if "experts" in name:
            continue  # reduce_experts does these
        p.grad.div_(n)
        dist.all_reduce(p.grad, group=dp_group)


def reduce_experts(model, dp_group, expert_dp_group):
    n = dist.get_world_size(dp_group)
    for name, p in model.named_parameters():
        if "experts" in name:
            p.grad.div_(n)
            dist.all_reduce(p.grad, group=expert_dp_group)


def finish(model, dp_group, expert_dp_group):
    reduce_dense(model, dp_group, expert_dp_group)
    reduce_experts(model, dp_group, expert_dp_group)
