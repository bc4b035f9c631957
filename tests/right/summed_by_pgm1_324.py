# Right: the shown loss is summed over dp and cp and divided by both; summed by the method of the process group, `group.allreduce(t)`, then waited for.
import torch
import torch.distributed as dist
import torch.nn.functional as F


@torch.no_grad()
def evaluate(model, batch, labels, dp_group, cp_group):
    loss = F.cross_entropy(model(batch), labels).detach()
    dist.all_reduce(loss, group=dp_group)
    work = cp_group.allreduce(loss)
    work.wait()
    loss = loss / dist.get_world_size(cp_group) / dist.get_world_size(dp_group)
    return loss.item()
