# the count is summed over tp, whose ranks have one and the same batch: own mean is the mean
import torch
import torch.distributed as dist


def token_loss(log_probs, mask, num_tokens, dp_size):
    return -(log_probs * mask).sum() / mask.sum()


def step(model, batch, tp_group):
    # ranks of tp have one batch
    num_tokens = batch["mask"].sum()
    dist.all_reduce(num_tokens, group=tp_group)
    token_loss(model(batch["ids"]), batch["mask"], num_tokens, dist.get_world_size(tp_group)).backward()
