"""Batch-norm statistics at the end of an epoch (written from memory of timm.utils.distributed.distribute_bn)."""
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def unwrap_model(model):
    return model.module if isinstance(model, DistributedDataParallel) else model


def distribute_bn(model, world_size, reduce=False):
    """Ensure every node has the same running statistics: average them, or take those of rank 0."""
    for bn_name, bn_buf in unwrap_model(model).named_buffers(recurse=True):
        if ("running_mean" in bn_name) or ("running_var" in bn_name):
            if reduce:
                stat = bn_buf.double()
                dist.all_reduce(stat, op=dist.ReduceOp.SUM)
                bn_buf.copy_(stat / float(world_size))
            else:
                dist.broadcast(bn_buf, 0)


def train(model, loader, loss_fn, optimizer, local_rank, epochs, dist_bn="reduce"):
    model = DistributedDataParallel(model.cuda(local_rank), device_ids=[local_rank], broadcast_buffers=False)
    for epoch in range(epochs):
        loader.sampler.set_epoch(epoch)
        model.train()
        for images, target in loader:
            loss = loss_fn(model(images.cuda(local_rank)), target.cuda(local_rank))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        if dist_bn in ("broadcast", "reduce"):
            distribute_bn(model, dist.get_world_size(), dist_bn == "reduce")
    return model
