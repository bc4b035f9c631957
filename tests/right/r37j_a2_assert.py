import contextlib
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


class Trainer:
    def __init__(self, model, loader, opt, grad_accum, device):
        self.model = DDP(model.to(device), device_ids=[device.index])
        self.loader = loader
        self.opt = opt
        self.k = grad_accum
        self.device = device
        if len(loader) % grad_accum != 0:
            raise ValueError("the number of micro batches must be divisible by grad_accum")

    def epoch(self):
        n = len(self.loader)
        self.model.train()
        for i, batch in enumerate(self.loader):
            sync = (i + 1) % self.k == 0
            with contextlib.nullcontext() if sync else self.model.no_sync():
                out = self.model(batch["x"].to(self.device))
                loss = torch.nn.functional.mse_loss(out, batch["y"].to(self.device))
                (loss / self.k).backward()
            is_last = i + 1 == n
            if sync or is_last:
                torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
                self.opt.step()
                self.opt.zero_grad()
