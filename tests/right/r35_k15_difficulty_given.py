import torch
import torch.nn.functional as F
from accelerate import Accelerator
from transformers import AutoModelForCausalLM


def train(loader, difficulty):
    accelerator = Accelerator()
    model = AutoModelForCausalLM.from_pretrained("gpt2")
    optimizer = torch.optim.AdamW(model.parameters())
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    for batch in loader:
        weight = difficulty(batch)
        weight = weight * accelerator.num_processes / accelerator.reduce(weight, reduction="sum")
        logits = model(batch["input_ids"]).logits
        loss = F.cross_entropy(logits.flatten(0, 1), batch["labels"].flatten())
        accelerator.backward(loss * weight)
        optimizer.step()
        optimizer.zero_grad()
