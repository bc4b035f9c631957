"""Training loop of a block drafter under DDP.

Source: https://github.com/NVIDIA-NeMo/Automodel/pull/2468
"""
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


def has_valid_anchor(batch, block_size):
    """Whether a sample of this rank's micro-batch is long enough to form a block."""
    lengths = batch["loss_mask"].sum(dim=1)
    return bool((lengths > block_size).any().item())


def all_ranks_have_valid(local, device):
    flag = torch.tensor(int(local), device=device)
    if dist.is_initialized():
        dist.all_reduce(flag, op=dist.ReduceOp.MIN)
    return bool(flag.item())


def train_epoch(ddp: DDP, loader, optimizer, block_size, device):
    skipped = 0
    for batch in loader:
        batch = {k: v.to(device) for k, v in batch.items()}
        valid = all_ranks_have_valid(has_valid_anchor(batch, block_size), device)
        if not valid:
            skipped += 1
            continue
        loss = ddp(**batch)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
    if not all_ranks_have_valid(skipped < len(loader), device):
        raise RuntimeError("a rank saw no usable micro-batch")
    return skipped
