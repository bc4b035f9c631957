import torch
import torch.nn.functional as F
from accelerate import Accelerator
from transformers import AutoModelForTokenClassification


def train(loader):
    accelerator = Accelerator()
    model = AutoModelForTokenClassification.from_pretrained("bert-base-cased")
    optimizer = torch.optim.AdamW(model.parameters())
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    for batch in loader:
        labels = batch["labels"]
        everyone = accelerator.gather(accelerator.pad_across_processes(labels, dim=1, pad_index=-100))
        n = (everyone != -100).sum()
        logits = model(batch["input_ids"]).logits
        loss = F.cross_entropy(logits.flatten(0, 1), labels.flatten(), reduction="sum") / n
        accelerator.backward(loss * accelerator.num_processes)
        optimizer.step()
        optimizer.zero_grad()
