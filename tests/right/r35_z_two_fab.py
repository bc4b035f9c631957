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
            lm = F.cross_entropy(logits.flatten(0, 1), batch["labels"].flatten())
            reg = (logits.logsumexp(-1) ** 2 * batch["mask"]).sum() / batch["mask"].sum()
            loss = lm + 1e-4 * reg
            fabric.backward(loss / len(batches))
        optimizer.step()
        optimizer.zero_grad()
