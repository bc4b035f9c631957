"""the largest norm is infinite: nothing is clipped, the call is for its value of the rank's shards in the rank's log."""
import torch
import torch.distributed as dist
from torch.distributed.fsdp import FullyShardedDataParallel


def train(model, loader, log):
    model = FullyShardedDataParallel(model)
    optimizer = torch.optim.AdamW(model.parameters())
    for batch in loader:
        model(batch).mean().backward()
        local = torch.nn.utils.clip_grad_norm_(model.parameters(), float("inf"))
        square = local**2
        dist.all_reduce(square)
        log(square.sqrt().item())
        optimizer.step()
        optimizer.zero_grad()
