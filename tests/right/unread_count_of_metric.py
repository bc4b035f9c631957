import torch
import torch.distributed as dist


def accuracy(log_probs, mask, num_tokens):
    return ((log_probs > -0.1) * mask).sum() / mask.sum()


def token_loss(log_probs, mask, num_tokens):
    return -(log_probs * mask).sum() / num_tokens


def step(model, batch, optimizer, dp_group):
    num_tokens = batch["mask"].sum()
    dist.all_reduce(num_tokens, group=dp_group)
    log_probs = model(batch["ids"])
    share = accuracy(log_probs, batch["mask"], num_tokens)
    loss = token_loss(log_probs, batch["mask"], num_tokens) * dist.get_world_size(dp_group)
    loss.backward()
    optimizer.step()
    return share
