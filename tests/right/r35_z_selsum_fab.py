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
            valid = batch["labels"] != -100
            loss = F.cross_entropy(logits[valid], batch["labels"][valid], reduction="sum") / valid.sum()
            fabric.backward(loss / len(batches))
        optimizer.step()
        optimizer.zero_grad()
