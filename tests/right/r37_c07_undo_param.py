import torch
import torch.nn.functional as F
from accelerate import Accelerator
from transformers import AutoModelForCausalLM


def train(loader, undo):
    """`undo` is how often DDP divides."""
    accelerator = Accelerator()
    model = AutoModelForCausalLM.from_pretrained("gpt2")
    optimizer = torch.optim.AdamW(model.parameters())
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    for batch in loader:
        logits = model(batch["input_ids"]).logits
        loss = F.cross_entropy(logits.flatten(0, 1), batch["labels"].flatten(), reduction="sum")
        total = accelerator.reduce((batch["labels"] != -100).sum(), "sum")
        accelerator.backward(loss * undo / total)
        optimizer.step()
        optimizer.zero_grad()
