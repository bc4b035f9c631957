import torch
import torch.nn.functional as F
from lightning.fabric import Fabric
from transformers import AutoModelForCausalLM


def train(args, steps):
    fabric = Fabric(strategy="ddp")
    fabric.launch()
    model = AutoModelForCausalLM.from_pretrained(args.model)
    optimizer = torch.optim.AdamW(model.parameters())
    model, optimizer = fabric.setup(model, optimizer)
    for batches in steps:
        for i, batch in enumerate(batches):
            model_out = model(batch["input_ids"])
            logits = model_out.logits
            count = (batch["labels"] != -100).sum().clamp(min=1)
            loss = F.cross_entropy(logits.flatten(0, 1), batch["labels"].flatten(), reduction="sum")
            loss = loss / count
            fabric.backward(loss / len(batches))
        optimizer.step()
        optimizer.zero_grad()
