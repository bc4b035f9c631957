"""Training loop with Accelerate (multi-GPU, DDP)."""
import torch
from accelerate import Accelerator


class SiameseModel(torch.nn.Module):
    def __init__(self, encoder, projection, margin=0.2):
        super().__init__()
        self.encoder, self.projection, self.margin = encoder, projection, margin

    def embed(self, x):
        return torch.nn.functional.normalize(self.projection(self.encoder(x)), dim=-1)

    def forward(self, anchor, positive, negative):
        a, p, n = self.embed(anchor), self.embed(positive), self.embed(negative)
        return torch.relu((a * n).sum(-1) - (a * p).sum(-1) + self.margin).mean()


def train(model, optimizer, loader, scheduler, epochs, path):
    accelerator = Accelerator(gradient_accumulation_steps=4)
    model, optimizer, loader, scheduler = accelerator.prepare(model, optimizer, loader, scheduler)
    siamese = accelerator.unwrap_model(model)
    for _ in range(epochs):
        model.train()
        for anchor, positive, negative in loader:
            with accelerator.accumulate(model):
                loss = model(anchor, positive, negative)
                accelerator.backward(loss)
                if accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                scheduler.step()
                optimizer.zero_grad()
    accelerator.wait_for_everyone()
    if accelerator.is_main_process:
        torch.save(siamese.state_dict(), path)
