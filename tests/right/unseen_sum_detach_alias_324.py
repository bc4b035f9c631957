# What it does: the sum over dp and cp is divided by both sizes.
# Why it is right: `.detach()` shares the memory: the in-place sum is seen in the tensor itself.
# Finding (without this header): line 8: error[SPMD324] metric-factor: the value that is shown is divided by `cp` compared with the mean over all ranks: divided by `dp`, divided by `cp`
import torch, torch.distributed as dist, torch.nn.functional as F


def evaluate(model, batch, labels, dp_group, cp_group):
    loss = F.cross_entropy(model(batch), labels).detach()
    dist.all_reduce(loss, group=dp_group)
    dist.all_reduce(loss.detach(), group=cp_group)
    loss = loss / dist.get_world_size(dp_group) / dist.get_world_size(cp_group)
    return loss.item()
