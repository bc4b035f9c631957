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
            losses = F.cross_entropy(model(batch["ids"]).logits.transpose(1, 2), batch["labels"], reduction="none")
            loss = (losses * mask).sum() / mask.sum().clamp(min=1)
            accelerator.backward(loss)
            if accelerator.sync_gradients:
                accelerator.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
        tokens = accelerator.gather(mask.sum()).sum()
        accelerator.log({"tokens": tokens.item(), "loss": accelerator.gather(loss.detach()).mean().item()})
