"""FSDP leaves the adapters alone; the script averages their gradients by itself."""
import torch
import torch.distributed as dist
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def adapters_of(model):
    return [m for n, m in model.named_modules() if n.endswith("adapter")]


def average(params):
    grads = [p.grad for p in params if p.grad is not None]
    with dist._coalescing_manager(group=dist.group.WORLD, async_ops=True) as cm:
        for g in grads:
            dist.all_reduce(g, op=dist.ReduceOp.AVG)
    cm.wait()


def main(model, loader):
    dist.init_process_group("nccl")
    adapters = adapters_of(model)
    trained = [p for a in adapters for p in a.parameters()]
    for p in model.parameters():
        p.requires_grad_(False)
    for p in trained:
        p.requires_grad_(True)
        dist.broadcast(p.data, 0)
    wrapped = FSDP(model, ignored_modules=adapters, use_orig_params=True)
    optimizer = torch.optim.AdamW(trained, lr=1e-4)
    for batch in loader:
        loss = wrapped(**batch).loss
        loss.backward()
        average(trained)
        torch.nn.utils.clip_grad_norm_(trained, 1.0)
        optimizer.step()
        optimizer.zero_grad()
