# the batch is broadcast: all ranks have the same mask, so the mean of means is the mean
import torch
import torch.distributed as dist


def token_loss(log_probs, mask, num_tokens, dp_size):
    return -(log_probs * mask).sum() / mask.sum()


def step(model, batch, dp_group):
    # broadcast batch: every rank trains on the same one with another dropout
    dist.broadcast(batch["mask"], 0, group=dp_group)
    dist.broadcast(batch["ids"], 0, group=dp_group)
    num_tokens = batch["mask"].sum()
    dist.all_reduce(num_tokens, group=dp_group)
    token_loss(model(batch["ids"]), batch["mask"], num_tokens, dist.get_world_size(dp_group)).backward()
