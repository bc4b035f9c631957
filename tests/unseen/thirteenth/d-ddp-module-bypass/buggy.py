# Captioning pre-training loop of a vision-language model under DDP.
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP


class VisionLanguageModel(nn.Module):
    def __init__(self, visual, decoder, dim, text_dim):
        super().__init__()
        self.visual, self.decoder = visual, decoder
        self.proj = nn.Linear(dim, text_dim)

    def encode(self, pixels):
        return self.proj(self.visual(pixels))

    def compute_loss(self, batch):
        memory = self.encode(batch["pixels"])
        logits = self.decoder(batch["input_ids"], memory)
        return F.cross_entropy(logits.flatten(0, 1), batch["labels"].flatten(), ignore_index=-100)

    def forward(self, batch):
        return self.compute_loss(batch)


def train_one_epoch(net, loader, optimizer, scheduler, device_id, max_norm):
    model = DDP(net.to(device_id), device_ids=[device_id], find_unused_parameters=True)
    model.train()
    for batch in loader:
        batch = {k: v.to(device_id, non_blocking=True) for k, v in batch.items()}
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = model.module.compute_loss(batch)  # BUG
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), max_norm)
        optimizer.step()
        scheduler.step()
        optimizer.zero_grad(set_to_none=True)
    return model.module.state_dict()
