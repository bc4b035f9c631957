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
        loss = F.cross_entropy(logits.flatten(0, 1), batch["labels"].flatten(), reduction="sum")
        labels, mask = accelerator.gather((batch["labels"], batch["mask"]))
        n = ((labels != -100) & mask.bool()).sum()
        loss = loss * accelerator.num_processes / n
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
