import torch
import torch.nn.functional as F
from lightning.fabric import Fabric
from transformers import AutoModelForSequenceClassification


def main(loader):
    fabric = Fabric(strategy="ddp")
    fabric.launch()
    teacher = fabric.setup_module(AutoModelForSequenceClassification.from_pretrained("bert-large-uncased"))
    student = AutoModelForSequenceClassification.from_pretrained("distilbert-base-uncased").to(fabric.device)
    optimizer = torch.optim.AdamW(student.parameters())
    loader = fabric.setup_dataloaders(loader)
    for batch in loader:
        with torch.no_grad():
            t = teacher(batch["input_ids"]).logits.softmax(-1)
        s = student(batch["input_ids"]).logits.log_softmax(-1)
        mask = batch["labels"] != -100
        n = fabric.all_reduce(mask.sum(), reduce_op="sum")
        loss = (F.kl_div(s, t, reduction="none").sum(-1) * mask).sum() / n
        fabric.backward(loss)
        for p in student.parameters():
            p.grad = fabric.all_reduce(p.grad, reduce_op="sum")
        optimizer.step()
        optimizer.zero_grad()
