"""Global token normalisation with Accelerate."""
import torch
import torch.nn.functional as F
from accelerate import Accelerator


def train(model, optimizer, loader, grad_accum):
    accelerator = Accelerator(gradient_accumulation_steps=grad_accum)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)  # DDP averages gradients
    it = iter(loader)
    for _ in range(len(loader) // grad_accum):
        batches = [next(it) for _ in range(grad_accum)]
        local = torch.stack([(b["labels"] != -100).sum() for b in batches]).sum()
        num_items = accelerator.gather(local).sum()
        for i, batch in enumerate(batches):
            logits = model(batch["input_ids"])
            loss = F.cross_entropy(logits.flatten(0, 1), batch["labels"].flatten(), reduction="sum")
            loss = loss / num_items * grad_accum * accelerator.num_processes
            with accelerator.accumulate(model):
                accelerator.backward(loss)
                optimizer.step()
                optimizer.zero_grad()
