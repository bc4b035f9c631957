"""Curriculum training of a time-series language model on several GPUs.

Source: OpenTSLM/OpenTSLM, pull request #49. The loss is computed by a method of the unwrapped
model, so the forward of the DDP wrapper never runs, its gradient reduction is not prepared and
each rank trains its own model on its own part of the data.
"""
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler


class TimeSeriesLM(torch.nn.Module):
    def __init__(self, encoder, projector, llm):
        super().__init__()
        self.encoder, self.projector, self.llm = encoder, projector, llm

    def compute_loss(self, batch):
        series = self.projector(self.encoder(batch["series"]))
        text = self.llm.get_input_embeddings()(batch["input_ids"])
        prefix = torch.full(series.shape[:2], -100, device=text.device)
        labels = torch.cat([prefix, batch["labels"]], dim=1)
        return self.llm(inputs_embeds=torch.cat([series, text], dim=1), labels=labels).loss

    def forward(self, batch):
        return self.compute_loss(batch)


class CurriculumTrainer:
    def __init__(self, model, device):
        self.device = device
        self.model = DDP(model.to(device), device_ids=[device.index])

    def _get_model(self):
        return self.model.module if isinstance(self.model, DDP) else self.model

    def train_stage(self, dataset, batch_size, epochs, lr):
        sampler = DistributedSampler(dataset, shuffle=True)
        loader = DataLoader(dataset, batch_size, sampler=sampler, drop_last=True)
        optimizer = torch.optim.AdamW(self.model.parameters(), lr=lr)
        for epoch in range(epochs):
            sampler.set_epoch(epoch)
            for batch in loader:
                batch = {k: v.to(self.device) for k, v in batch.items()}
                optimizer.zero_grad()
                loss = self._get_model().compute_loss(batch)  # BUG
                loss.backward()
                torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
                optimizer.step()
        if dist.get_rank() == 0:
            torch.save(self._get_model().state_dict(), "stage.pt")
