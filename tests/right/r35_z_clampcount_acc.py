import torch
import torch.nn.functional as F
from accelerate import Accelerator
from transformers import AutoModelForCausalLM


def train(args, loader):
    accelerator = Accelerator(gradient_accumulation_steps=args.gradient_accumulation_steps)
    model = AutoModelForCausalLM.from_pretrained(args.model)
    optimizer = torch.optim.AdamW(model.parameters())
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    for batch in loader:
        with accelerator.accumulate(model):
            model_out = model(batch["input_ids"])
            logits = model_out.logits
            count = (batch["labels"] != -100).sum().clamp(min=1)
            loss = F.cross_entropy(logits.flatten(0, 1), batch["labels"].flatten(), reduction="sum")
            loss = loss / count
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
