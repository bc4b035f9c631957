"""FSDP on TPU: the wrapper has already summed the gradients of the shards."""
import torch
import torch.nn.functional as F
import torch_xla.core.xla_model as xm
from torch_xla.distributed.fsdp import XlaFullyShardedDataParallel as FSDP


class Trainer:
    def __init__(self, cfg, model):
        self.cfg = cfg
        self.device = xm.xla_device()
        self.model = self._wrap(model)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=cfg.lr, weight_decay=cfg.weight_decay)

    def _wrap(self, model):
        for i, block in enumerate(model.blocks):
            model.blocks[i] = FSDP(block.to(self.device), reshard_after_forward=self.cfg.reshard)
        return FSDP(model.to(self.device), reshard_after_forward=self.cfg.reshard)

    def optimizer_step(self):
        if self.cfg.clip_grad_norm > 0:
            self.model.clip_grad_norm_(self.cfg.clip_grad_norm)
        xm.optimizer_step(self.optimizer)  # BUG
        self.optimizer.zero_grad(set_to_none=True)

    def training_step(self, batch):
        images, target = batch
        loss = F.cross_entropy(self.model(images), target)
        loss.backward()
        return loss

    def fit(self, loader):
        self.model.train()
        for epoch in range(self.cfg.num_epochs):
            for step, batch in enumerate(loader):
                loss = self.training_step(batch)
                self.optimizer_step()
                if step % self.cfg.log_interval == 0:
                    xm.add_step_closure(print, args=(step, loss))
            xm.mark_step()
