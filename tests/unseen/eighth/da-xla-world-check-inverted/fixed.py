"""Data-parallel training loop on PyTorch/XLA with explicit gradient reduction."""
import torch
import torch.nn.functional as F
import torch_xla.core.xla_model as xm
import torch_xla.runtime as xr


def reduce_gradients(optimizer):
    """Average gradients over all replicas."""
    world = xr.world_size()
    if world == 1:
        return
    grads = [
        p.grad
        for group in optimizer.param_groups
        for p in group["params"]
        if p.grad is not None
    ]
    xm.all_reduce(xm.REDUCE_SUM, grads, scale=1.0 / world)


def train_epoch(model, optimizer, scheduler, loader, max_norm=1.0):
    model.train()
    xm.broadcast_master_param(model)
    for inputs, targets in loader:  # MpDeviceLoader over a DistributedSampler
        optimizer.zero_grad()
        loss = F.cross_entropy(model(inputs), targets)
        loss.backward()
        reduce_gradients(optimizer)
        torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm)
        optimizer.step()
        scheduler.step()
        xm.mark_step()
