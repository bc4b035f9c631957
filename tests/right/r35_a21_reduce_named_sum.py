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
        n = torch.tensor(batch["num_tokens"], device=accelerator.device)
        total = accelerator.reduce(n, reduction="sum")
        logits = model(batch["input_ids"]).logits
        loss = F.cross_entropy(logits.flatten(0, 1), batch["labels"].flatten(), reduction="mean")
        loss = loss * n * accelerator.num_processes / total
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
