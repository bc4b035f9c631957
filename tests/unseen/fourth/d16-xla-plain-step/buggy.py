"""Training on TPU cores: a mixed-precision trainer (timm / accelerate style)."""
import torch
import torch.nn as nn
import torch_xla.core.xla_model as xm
import torch_xla.distributed.parallel_loader as pl
import torch_xla.distributed.xla_multiprocessing as xmp


class Engine:
    def __init__(self, cfg, model, device):
        self.cfg, self.device = cfg, device
        self.model = model.to(device)
        self.criterion = nn.CrossEntropyLoss()
        self.optimizer = torch.optim.SGD(model.parameters(), lr=cfg.lr * xm.xrt_world_size(), momentum=0.9)

    def _clip(self):
        if self.cfg.clip_grad is not None:
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.cfg.clip_grad)

    def _update(self):
        if self.cfg.clip_grad is not None:
            self._clip()
            self.optimizer.step()  # BUG
            xm.mark_step()
        else:
            xm.optimizer_step(self.optimizer)

    def train_one_epoch(self, loader):
        self.model.train()
        for x, y in pl.MpDeviceLoader(loader, self.device):
            self.optimizer.zero_grad()
            loss = self.criterion(self.model(x), y)
            loss.backward()
            self._update()


def make_loader(cfg, dataset):
    sampler = torch.utils.data.distributed.DistributedSampler(
        dataset, num_replicas=xm.xrt_world_size(), rank=xm.get_ordinal(), shuffle=True
    )
    return torch.utils.data.DataLoader(dataset, batch_size=cfg.batch_size, sampler=sampler, drop_last=True)


def _mp_fn(index, cfg):
    engine = Engine(cfg, cfg.build_model(), xm.xla_device())
    loader = make_loader(cfg, cfg.build_dataset())
    for _ in range(cfg.epochs):
        engine.train_one_epoch(loader)


def main(cfg):
    xmp.spawn(_mp_fn, args=(cfg,))
