"""Token-normalised loss for FSDP2 whose reduce-scatter sums gradients."""
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.distributed.fsdp import FSDPModule, fully_shard


def shard_model(model, dp_mesh):
    for layer in model.model.layers:
        fully_shard(layer, mesh=dp_mesh)
    fully_shard(model, mesh=dp_mesh)
    for module in model.modules():
        if isinstance(module, FSDPModule):
            module.set_gradient_divide_factor(1.0)
    return model


def compute_loss(logits, labels, num_items_in_batch, dp_group):
    shifted = F.pad(labels, (0, 1), value=-100)[..., 1:]
    loss = F.cross_entropy(
        logits.float().flatten(0, 1), shifted.flatten(), ignore_index=-100, reduction="sum"
    )
    return loss * dist.get_world_size(dp_group) / num_items_in_batch  # BUG


def train_step(model, optimizer, micro_batches, dp_group):
    n = sum((b["labels"][..., 1:] != -100).sum() for b in micro_batches)
    dist.all_reduce(n, group=dp_group)  # tokens of all ranks and micro-batches
    optimizer.zero_grad()
    for b in micro_batches:
        logits = model(input_ids=b["input_ids"]).logits
        compute_loss(logits, b["labels"], n, dp_group).backward()
    optimizer.step()
