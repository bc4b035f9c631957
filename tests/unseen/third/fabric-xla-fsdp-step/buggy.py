"""Language-model training with XLA fully sharded data parallelism."""
# Source: pytorch/xla FSDP documentation and Lightning pull request 18126 (from memory)
import torch
import torch_xla.core.xla_model as xm
import torch_xla.distributed.parallel_loader as pl
from torch_xla.distributed.fsdp import XlaFullyShardedDataParallel as FSDP
from torch_xla.distributed.fsdp import checkpoint_module


def wrap(model, block_cls):
    def shard(module):
        for name, child in module.named_children():
            if isinstance(child, block_cls):
                setattr(module, name, FSDP(checkpoint_module(child)))
            else:
                shard(child)

    shard(model)
    return FSDP(model)


def evaluate(model, loader):
    model.eval()
    total = torch.zeros(2, device=xm.xla_device())
    with torch.no_grad():
        for batch in loader:
            loss = model(**batch).loss
            total += torch.stack([loss, torch.ones_like(loss)])
    total = xm.all_reduce(xm.REDUCE_SUM, total)
    return (total[0] / total[1]).item()


def train(model, block_cls, train_loader, val_loader, lr, max_norm, epochs):
    device = xm.xla_device()
    model = wrap(model.to(device), block_cls)
    optimizer = torch.optim.AdamW(model.parameters(), lr=lr)
    device_loader = pl.MpDeviceLoader(train_loader, device)
    for epoch in range(epochs):
        model.train()
        for batch in device_loader:
            optimizer.zero_grad()
            loss = model(**batch).loss
            loss.backward()
            model.clip_grad_norm_(max_norm)
            xm.optimizer_step(optimizer)  # BUG
        xm.master_print(f"epoch {epoch} val {evaluate(model, pl.MpDeviceLoader(val_loader, device))}")
