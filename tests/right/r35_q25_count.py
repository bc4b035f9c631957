import torch
import torch.distributed as dist
import torch.nn.functional as F
from accelerate import Accelerator
from transformers import AutoModelForCausalLM


def train(loader):
    accelerator = Accelerator()
    model = AutoModelForCausalLM.from_pretrained("gpt2")
    optimizer = torch.optim.AdamW(model.parameters())
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    for batch in loader:
        logits = model(batch["input_ids"]).logits
        loss = F.cross_entropy(logits.flatten(0, 1), batch["labels"].flatten(), reduction="mean")
        active = torch.tensor(float(batch["labels"].numel() > 0), device=accelerator.device)
        count = accelerator.reduce(active, "sum")
        loss = loss * active / (count / accelerator.num_processes)
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
