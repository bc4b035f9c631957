# Right: the function asserts that both groups have the same size, hence ep = 1.
import torch
import torch.distributed as dist


def finish(model, dp_group, expert_dp_group):
    """Every data rank has all experts; the expert group is the data group under another name in this build."""
    assert dist.get_world_size(expert_dp_group) == dist.get_world_size(dp_group)
    for name, param in model.named_parameters():
        if "experts" in name:
            dist.all_reduce(param.grad, group=expert_dp_group)
            param.grad.div_(expert_dp_group.size())
        else:
            dist.all_reduce(param.grad, group=dp_group)
            param.grad.div_(dp_group.size())
