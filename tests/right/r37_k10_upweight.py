import torch
import torch.nn.functional as F
from accelerate import Accelerator
from transformers import AutoModelForCausalLM


def train(loader, upweight):
    """The rank-balanced factor is given by the launcher: the number of data-parallel copies."""
    accelerator = Accelerator()
    model = AutoModelForCausalLM.from_pretrained("gpt2")
    optimizer = torch.optim.AdamW(model.parameters())
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    for batch in loader:
        total = accelerator.gather((batch["labels"] != -100).sum()).sum()
        logits = model(batch["input_ids"]).logits
        loss = F.cross_entropy(logits.flatten(0, 1), batch["labels"].flatten(), reduction="sum")
        loss = loss * (upweight / total)
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
