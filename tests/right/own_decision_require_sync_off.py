"""The round is left out where there is one rank, or where the caller ends the job, or the loss is the same on all ranks."""
import torch
from torch.nn.parallel import DistributedDataParallel as DDP


def train(model, windows, optimizer, device):
    ddp = DDP(model, device_ids=[device])
    for window in windows:
        for i, batch in enumerate(window):
            last = i == len(window) - 1
            ddp.require_backward_grad_sync = last
            loss = ddp(batch.to(device)).mean() / len(window)
            if not last and not torch.isfinite(loss):
                continue
            if last and not torch.isfinite(loss):
                loss = torch.nan_to_num(loss, 0.0, 0.0, 0.0) * 0
            loss.backward()
        optimizer.step()
        optimizer.zero_grad()
