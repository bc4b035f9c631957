# thread: https://github.com/NCAR/miles-credit/pull/416
"""Moving average of the weights of a model sharded by fully_shard."""
import os

import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor


def local_of(tensor):
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


class EMATracker:
    """Keeps the average of this rank's part; whole tensors exist only in files."""

    def __init__(self, model, decay):
        self.model, self.decay = model, decay
        self.num_updates = 0
        self.shadow = {n: local_of(p.detach()).clone() for n, p in model.named_parameters()}

    @torch.no_grad()
    def update(self):
        self.num_updates += 1
        decay = min(self.decay, (1 + self.num_updates) / (10 + self.num_updates))
        for name, p in self.model.named_parameters():
            self.shadow[name].lerp_(local_of(p.detach()), 1 - decay)

    @torch.no_grad()
    def swap(self):
        for name, p in self.model.named_parameters():
            local = local_of(p.detach())
            kept = local.clone()
            local.copy_(self.shadow[name])
            self.shadow[name].copy_(kept)

    def state_dict(self):
        """Called on every rank; the result is complete on each."""
        full = {}
        for name, p in self.model.named_parameters():
            tensor = self.shadow[name]
            if isinstance(p, DTensor):
                tensor = DTensor.from_local(
                    tensor,
                    p.device_mesh,
                    p.placements,
                    run_check=False,
                ).full_tensor()  # BUG
            full[name] = tensor.cpu()
        return {"shadow": full, "num_updates": self.num_updates}

    def load_state_dict(self, state):
        self.num_updates = state["num_updates"]
        for name, p in self.model.named_parameters():
            tensor = state["shadow"][name].to(self.shadow[name].device)
            if isinstance(p, DTensor):
                tensor = distribute_tensor(tensor, p.device_mesh, p.placements).to_local()
            self.shadow[name].copy_(tensor)


def shard(model, mesh):
    for block in model.blocks:
        fully_shard(block, mesh=mesh)
    return fully_shard(model, mesh=mesh)


def save_ema(tracker, directory):
    state = tracker.state_dict()
    if dist.get_rank() == 0:
        torch.save(state, os.path.join(directory, "checkpoint_ema.pt"))
    dist.barrier()


def train_one_epoch(model, loader, criterion, optimizer, tracker, directory):
    model.train()
    for x, y in loader:
        criterion(model(x.cuda()), y.cuda()).backward()
        optimizer.step()
        optimizer.zero_grad()
        tracker.update()
    save_ema(tracker, directory)
