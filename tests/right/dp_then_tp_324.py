"""the loss is the same on the tp ranks; summed over both groups and divided by both sizes."""
import torch
import torch.distributed as dist
import torch.nn.functional as F


@torch.no_grad()
def evaluate(model, batch, labels, dp_group, tp_group):
    loss = F.cross_entropy(model(batch), labels)
    dist.all_reduce(loss, group=dp_group)
    dist.all_reduce(loss, group=tp_group)
    return (loss / (dist.get_world_size(dp_group) * dist.get_world_size(tp_group))).item()
