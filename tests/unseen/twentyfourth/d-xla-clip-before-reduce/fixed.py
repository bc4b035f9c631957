"""Data-parallel training on TPU cores with gradient clipping.

After pytorch/xla issue #1708, pytorch-tpu/fairseq PR #32 and huggingface/transformers PR #20116.
"""
import torch
import torch.nn.functional as F
import torch_xla.core.xla_model as xm
import torch_xla.distributed.parallel_loader as pl
import torch_xla.distributed.xla_multiprocessing as xmp
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler


def build_loader(dataset, batch_size, device):
    sampler = DistributedSampler(
        dataset, num_replicas=xm.xrt_world_size(), rank=xm.get_ordinal(), shuffle=True
    )
    loader = DataLoader(dataset, batch_size=batch_size, sampler=sampler, drop_last=True)
    return pl.MpDeviceLoader(loader, device), sampler


class Trainer:
    """The gradients of each core belong to its own part of the batch until they are reduced."""

    def __init__(self, model, optimizer, scheduler, max_grad_norm, accumulation_steps):
        self.model, self.optimizer, self.scheduler = model, optimizer, scheduler
        self.max_grad_norm, self.accumulation_steps = max_grad_norm, accumulation_steps

    def optimizer_step(self):
        xm.reduce_gradients(self.optimizer)
        if self.max_grad_norm > 0:
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.max_grad_norm)
        self.optimizer.step()
        self.scheduler.step()
        self.optimizer.zero_grad()

    def train_epoch(self, loader):
        self.model.train()
        total = 0.0
        for step, (x, y) in enumerate(loader):
            loss = F.cross_entropy(self.model(x), y) / self.accumulation_steps
            loss.backward()
            total = total + loss.detach()
            if (step + 1) % self.accumulation_steps == 0:
                self.optimizer_step()
        return xm.mesh_reduce("train_loss", total.item(), lambda xs: sum(xs) / len(xs))


def _mp_fn(index, cfg):
    torch.manual_seed(cfg.seed)  # the same initial weights on each core
    device = xm.xla_device()
    model = cfg.build_model().to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=cfg.lr)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, cfg.total_steps)
    loader, sampler = build_loader(cfg.dataset, cfg.batch_size, device)
    trainer = Trainer(model, optimizer, scheduler, cfg.max_grad_norm, cfg.accumulation_steps)
    for epoch in range(cfg.epochs):
        sampler.set_epoch(epoch)
        xm.master_print(epoch, trainer.train_epoch(loader))


def main(cfg):
    xmp.spawn(_mp_fn, args=(cfg,))
