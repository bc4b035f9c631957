"""Training step of a speculative-decoding drafter under FSDP."""
import torch
import torch.distributed as dist
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def training_step(drafter: FSDP, batch, optimizer):
    token_loss = drafter(**batch)
    mask = batch["loss_mask"]
    loss_sum, tokens = (token_loss * mask).sum(), mask.sum()
    dist.all_reduce(tokens)
    # tokens is now the count of all ranks, the gradient is this rank's share
    loss = loss_sum * dist.get_world_size() / tokens
    loss.backward()
    drafter.clip_grad_norm_(1.0)
    optimizer.step()
    optimizer.zero_grad()
    return loss.detach()
