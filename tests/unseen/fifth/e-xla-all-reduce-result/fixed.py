"""Token count over all replicas on TPU."""
import torch
import torch_xla.core.xla_model as xm


def normalised_loss(token_loss, mask):
    count = mask.sum()
    count = xm.all_reduce(xm.REDUCE_SUM, count)
    return (token_loss * mask).sum() / count * xm.xrt_world_size()
