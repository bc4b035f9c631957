import torch
import torch.distributed as dist
import torch.nn.functional as F


def loss_sum(loss_mean, loss_mask, valid):
    """`loss_mean` is over the valid tokens."""
    share = valid.sum() / loss_mask.sum()
    loss = loss_mean * share
    return loss * loss_mask.sum()


def finalize(model, num_tokens):
    dist.all_reduce(num_tokens)
    for p in model.parameters():
        p.grad.div_(num_tokens)
