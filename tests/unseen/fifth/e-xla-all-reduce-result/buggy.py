"""Token count over all replicas on TPU."""
import torch
import torch_xla.core.xla_model as xm


def normalised_loss(token_loss, mask):
    count = mask.sum()
    xm.all_reduce(xm.REDUCE_SUM, count)  # BUG: returns the sum, count stays local
    return (token_loss * mask).sum() / count * xm.xrt_world_size()
