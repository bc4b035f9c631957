import torch
import torch.nn.functional as F
from accelerate import Accelerator
from transformers import AutoModelForCausalLM


def train(loader):
    accelerator = Accelerator()
    model = AutoModelForCausalLM.from_pretrained("gpt2")
    optimizer = torch.optim.AdamW(model.parameters())
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    for batch in loader:
        has = torch.tensor(1.0 if (batch["labels"] != -100).any() else 0.0, device=accelerator.device)
        active = accelerator.reduce(has, reduction="sum").clamp(min=1)
        logits = model(batch["input_ids"]).logits
        loss = F.cross_entropy(logits.flatten(0, 1), batch["labels"].flatten(), reduction="sum")
        loss = loss / (batch["labels"] != -100).sum().clamp(min=1)
        loss = loss * has * accelerator.num_processes / active
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
