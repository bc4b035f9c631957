"""Curriculum stage under DistributedDataParallel.

Source: https://github.com/OpenTSLM/OpenTSLM/pull/49
"""
import torch
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP


class TimeSeriesLLM(nn.Module):
    def __init__(self, encoder, projector, llm):
        super().__init__()
        self.encoder, self.projector, self.llm = encoder, projector, llm

    def compute_loss(self, batch):
        feats = self.projector(self.encoder(batch["series"]))
        return self.llm(inputs_embeds=feats, labels=batch["labels"]).loss

    def forward(self, batch):
        return self.compute_loss(batch)


class CurriculumTrainer:
    def __init__(self, model, device, distributed):
        model = model.to(device)
        self.model = DDP(model, device_ids=[device]) if distributed else model

    def _get_model(self):
        return self.model.module if isinstance(self.model, DDP) else self.model

    def _train_stage(self, loader, optimizer, scheduler):
        for batch in loader:
            optimizer.zero_grad()
            loss = self.model(batch)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(self._get_model().parameters(), 1.0)
            optimizer.step()
            scheduler.step()
