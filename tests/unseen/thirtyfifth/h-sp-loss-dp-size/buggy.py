"""Token-weighted loss under FSDP with sequence parallelism."""
# thread: ByteDance-Seed/VeOmni#338
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.distributed.fsdp import fully_shard


def build(model, ps):
    # ps.fsdp_mesh: flattened (dp, sp) ranks; gradients are averaged over it
    for layer in model.layers:
        fully_shard(layer, mesh=ps.fsdp_mesh)
    return fully_shard(model, mesh=ps.fsdp_mesh)


def mean_global_loss(loss_sum, num_tokens, ps):
    length = num_tokens.detach().clone()
    dist.all_reduce(length, group=ps.fsdp_mesh.get_group())
    return loss_sum / length * ps.dp_size  # BUG: FSDP divides by the sequence-parallel ranks too


def train_step(model, micro_batch, ps, optimizer):
    # every sequence-parallel rank holds its slice of the tokens
    logits = model(micro_batch["input_ids"], position_ids=micro_batch["position_ids"])
    labels = micro_batch["labels"].view(-1)
    loss_sum = F.cross_entropy(logits.float().flatten(0, 1), labels, ignore_index=-100, reduction="sum")
    loss = mean_global_loss(loss_sum, (labels != -100).sum(), ps)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
