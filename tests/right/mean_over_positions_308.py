import torch
import torch.distributed as dist


def loss_and_mean(logits, picked, group):
    # logits: [b, s, v of this rank]
    m = logits.max(-1).values
    dist.all_reduce(m, op=dist.ReduceOp.MAX, group=group)
    logits = logits - m[..., None]
    z = logits.exp().sum(-1)
    dist.all_reduce(z, group=group)
    # how many classes of this rank are near the top, a mean over positions: for the histogram of ranks
    near = (logits > -1).sum(-1).float().mean(-1)
    return z.log() - picked, near
