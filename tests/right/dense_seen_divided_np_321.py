# Right: both kinds are summed and divided by the size of dp, the second in place by numpy and copy_.
import torch
import torch.distributed as dist


def finish(model, dp_group, expert_dp_group):
    for name, param in model.named_parameters():
        if "experts" in name:
            dist.all_reduce(param.grad, group=expert_dp_group)
            param.grad.div_(dp_group.size())
        else:
            dist.all_reduce(param.grad, group=dp_group)
            param.grad.copy_(torch.from_numpy(param.grad.cpu().numpy() / dp_group.size()))
