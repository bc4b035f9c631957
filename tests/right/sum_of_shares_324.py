"""each rank's loss was divided by the global number of samples, so the sum is the mean."""
import torch
import torch.distributed as dist
import torch.nn.functional as F


@torch.no_grad()
def evaluate(model, batch, labels, total_samples, dp_group):
    loss = F.cross_entropy(model(batch), labels, reduction="sum") / total_samples
    dist.all_reduce(loss, group=dp_group)
    return loss.item()


@torch.no_grad()
def evaluate_over_tp(model, batch, labels, dp_group, tp_group):
    """The loss is the same on the tp ranks: their sum is divided by their number, too."""
    loss = F.cross_entropy(model(batch), labels)
    dist.all_reduce(loss, group=dp_group)
    dist.all_reduce(loss, group=tp_group)
    return (loss / (dist.get_world_size(dp_group) * dist.get_world_size(tp_group))).item()
