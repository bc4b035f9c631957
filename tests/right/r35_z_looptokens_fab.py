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
            loss, count = 0.0, 0
            for l, y in zip(logits, batch["labels"]):
                loss = loss + F.cross_entropy(l, y, reduction="sum")
                count += (y != -100).sum()
            loss = loss / count
            fabric.backward(loss / len(batches))
        optimizer.step()
        optimizer.zero_grad()
