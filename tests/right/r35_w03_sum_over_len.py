import torch
import torch.nn.functional as F
from accelerate import Accelerator
from transformers import AutoModelForCausalLM


def train(args, loader):
    accelerator = Accelerator(gradient_accumulation_steps=args.accum)
    model = AutoModelForCausalLM.from_pretrained(args.model)
    optimizer = torch.optim.AdamW(model.parameters())
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    for batch in loader:
        with accelerator.accumulate(model):
            labels = batch["labels"]
            logits = model(batch["input_ids"]).logits
            loss = F.cross_entropy(logits.flatten(0, 1), labels.flatten(), reduction="sum")
            loss = loss / (labels != -100).sum()
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
