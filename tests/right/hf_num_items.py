"""Accelerate: sum over tokens of all processes and rounds; what `backward` and DDP divide is multiplied back."""
import torch
from accelerate import Accelerator


def batches_of(loader, n):
    it = iter(loader)
    while True:
        group = []
        for _ in range(n):
            try:
                group.append(next(it))
            except StopIteration:
                return
        yield group


def main(model, optimizer, loader, gas=4, epochs=1):
    accelerator = Accelerator(gradient_accumulation_steps=gas)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    criterion = torch.nn.CrossEntropyLoss(reduction="sum", ignore_index=-100)
    for _ in range(epochs):
        for group in batches_of(loader, gas):
            local = sum((b["labels"] != -100).sum() for b in group)
            num_items = accelerator.gather(local).sum().item()
            for b in group:
                with accelerator.accumulate(model):
                    logits = model(b["input_ids"]).logits
                    loss = criterion(logits.flatten(0, 1), b["labels"].flatten())
                    # DDP divides by num_processes and accelerator.backward by the rounds
                    loss = loss * gas * accelerator.num_processes / num_items
                    accelerator.backward(loss)
                    if accelerator.sync_gradients:
                        accelerator.clip_grad_norm_(model.parameters(), 1.0)
                    optimizer.step()
                    optimizer.zero_grad()
