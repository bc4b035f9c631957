"""The first optimizer has done its steps on the whole model, the same on every rank, before the model is sharded."""
import torch
from torch.distributed.fsdp import fully_shard


class Trainer:
    def __init__(self, model, cfg, mesh):
        self.model, self.cfg, self.mesh = model, cfg, mesh

    def calibrate(self, batches):
        opt = torch.optim.SGD(self.model.parameters(), lr=1e-3)
        for b in batches:
            self.model(b).mean().backward()
            opt.step()
            opt.zero_grad()
        fully_shard(self.model, mesh=self.mesh)

    def fit(self, loader):
        opt = torch.optim.AdamW(self.model.parameters(), lr=self.cfg.lr)
        for b in loader:
            self.model(b).mean().backward()
            opt.step()
            opt.zero_grad()
