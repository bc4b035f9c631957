"""Whole tensors for a checkpoint and for the log: gathered without gradients, copied to the CPU by rank 0 only, loaded by shards."""

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.tensor import DTensor, distribute_tensor


@torch.no_grad()
def full_state_dict(model, is_rank_zero, device=None):
    cpu_state_dict = {}
    for name, param in model.state_dict().items():
        if param.is_cpu:
            param = param.to(device)
        if hasattr(param, "_local_tensor"):
            # All ranks take part in the gather.
            param = param.full_tensor()
        if is_rank_zero:
            cpu_state_dict[name] = param.cpu()
        dist.barrier()
    return cpu_state_dict


def load_full(model, full_sd, strict=True):
    meta = model.state_dict()
    sharded = {}
    for name, full in full_sd.items():
        target = meta[name]
        if isinstance(target, DTensor):
            full = distribute_tensor(full.to(target.dtype), target.device_mesh, target.placements)
        sharded[name] = nn.Parameter(full)
    return model.load_state_dict(sharded, strict=strict, assign=True)


def log_step(metrics, loss, model, step):
    loss = loss.detach()
    if isinstance(loss, DTensor):
        loss = loss.full_tensor()
    metrics["loss"] = loss.item()
    with torch.no_grad():
        for name, param in model.named_parameters():
            if param.grad is None or not name.endswith("gate.weight"):
                continue
            grad = param.grad
            whole = grad.full_tensor() if isinstance(grad, DTensor) else grad
            metrics[f"{name}.grad"] = whole.abs().max().item()
    return {"step": step, **metrics}


def train(model, optimizer, loader, path):
    for step, (tokens, labels) in enumerate(loader):
        loss = nn.functional.cross_entropy(model(tokens).flatten(0, 1).float(), labels.flatten())
        loss.backward()
        metrics = log_step({}, loss, model, step)
        optimizer.step()
        optimizer.zero_grad()
        if dist.get_rank() == 0:
            print(metrics)
    state = full_state_dict(model, dist.get_rank() == 0, "cuda")
    if dist.get_rank() == 0:
        torch.save(state, path)
