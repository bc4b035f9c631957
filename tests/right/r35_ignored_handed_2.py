"""What the optimizer gets is what is left of the sharded model: a caller says so."""
import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def wrap(model, local_rank):
    frozen = [m for m in model.modules() if m.__class__.__name__ == "Frozen"]
    fsdp = FSDP(model, ignored_modules=frozen, device_id=local_rank)
    return fsdp, frozen


def train(fsdp, frozen, loader, loss_fn):
    optimizer = torch.optim.SGD(frozen, lr=0.1)
    for x, y in loader:
        loss_fn(fsdp(x), y).backward()
        optimizer.step()


def main(model, loader, loss_fn, local_rank):
    fsdp, _ = wrap(model, local_rank)
    train(fsdp, list(fsdp.parameters()), loader, loss_fn)
