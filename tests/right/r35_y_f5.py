import torch
import torch.nn.functional as F
from lightning.fabric import Fabric
from transformers import AutoModelForCausalLM


def train(loader):
    fabric = Fabric(strategy="ddp")
    fabric.launch()
    model = AutoModelForCausalLM.from_pretrained("gpt2")
    optimizer = torch.optim.AdamW(model.parameters())
    model, optimizer = fabric.setup(model, optimizer)
    for batch in fabric.setup_dataloaders(loader):
        labels = batch["labels"]
        logits = model(batch["input_ids"]).logits
        loss = F.cross_entropy(logits.flatten(0, 1), labels.flatten(), reduction="mean")
        n = torch.tensor(batch["n"], device=fabric.device).float()
        total = fabric.all_reduce(n.clone(), reduce_op="sum")
        loss = loss * n * fabric.world_size / total
        fabric.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
