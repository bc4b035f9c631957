"""The clock is asked in a job of one rank alone."""
import time
import torch
import torch.distributed as dist


class Runner:
    def __init__(self, model, cfg):
        self.model, self.parallel = model, cfg.gpus > 1

    def run(self, loader, limit):
        t0 = time.time()
        for x in loader:
            loss = self.model(x).mean()
            if not self.parallel and time.time() - t0 > limit:
                break
            if self.parallel:
                dist.all_reduce(loss)
        return loss
