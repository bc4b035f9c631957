import torch
import torch.distributed as dist
import torch.nn.functional as F


@torch.no_grad()
def report(losses, loss_mask, valid):
    loss = losses.sum() / valid.sum()
    return loss * (valid.sum() / loss_mask.sum())


def finalize(model, num_tokens):
    dist.all_reduce(num_tokens)
    for p in model.parameters():
        p.grad.div_(num_tokens)
