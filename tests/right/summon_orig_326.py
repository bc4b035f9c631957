"""the norm is taken of whole gradients, summoned, with original parameters (the gradients are written back)."""
import torch
from torch.distributed.fsdp import FullyShardedDataParallel


def train(model, loader):
    model = FullyShardedDataParallel(model, use_orig_params=True)
    optimizer = torch.optim.AdamW(model.parameters())
    for batch in loader:
        model(batch).mean().backward()
        with FullyShardedDataParallel.summon_full_params(model, with_grads=True):
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
