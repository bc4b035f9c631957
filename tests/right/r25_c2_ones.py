# the mask is all ones: every position counts and blocks have fixed length, so ranks have the same number of tokens
import torch
import torch.distributed as dist


def loss_fn(log_probs, num_tokens):
    mask = torch.ones_like(log_probs)
    return -(log_probs * mask).sum() / mask.sum()


def step(model, batch, dp_group):
    # blocks of fixed length, all positions count, drop_last
    num_tokens = torch.tensor(batch["ids"].numel())
    dist.all_reduce(num_tokens, group=dp_group)
    loss_fn(model(batch["ids"]), num_tokens).backward()
