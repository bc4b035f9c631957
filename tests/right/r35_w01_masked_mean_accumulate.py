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
            mask = batch["loss_mask"]
            logits = model(batch["input_ids"]).logits
            losses = F.cross_entropy(logits.transpose(1, 2), batch["labels"], reduction="none")
            loss = (losses * mask).sum() / mask.sum()
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
