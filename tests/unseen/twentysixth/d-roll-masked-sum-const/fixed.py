# ROLL 3a7b01f9
"""Token-mean policy loss of an FSDP actor; a rank may hold no response token at all."""
import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard


def masked_sum(tensor: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    return (tensor * mask).sum()


def build_actor(model, dp_mesh):
    for layer in model.layers:
        fully_shard(layer, mesh=dp_mesh)
    return fully_shard(model, mesh=dp_mesh)


def train_step(actor, batch, dp_mesh, optimizer, clip=0.2):
    mask = batch["response_mask"]
    num_tokens = mask.sum()
    dist.all_reduce(num_tokens, group=dp_mesh.get_group())
    log_probs = actor(batch["input_ids"])
    ratio = (log_probs - batch["old_log_probs"]).exp()
    adv = batch["advantages"]
    pg = -torch.min(ratio * adv, ratio.clamp(1 - clip, 1 + clip) * adv)
    # FSDP averages over dp ranks: multiply to get the mean over all tokens
    loss = masked_sum(pg, mask) / num_tokens.clamp(min=1) * dp_mesh.size()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.detach()
