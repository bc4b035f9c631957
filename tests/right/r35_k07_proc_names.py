import torch
import torch.nn.functional as F
from accelerate import Accelerator
from transformers import AutoModelForCausalLM


def loss_of(logits, labels, total, n_procs):
    loss = F.cross_entropy(logits.flatten(0, 1), labels.flatten(), reduction="sum")
    return loss * n_procs / total


def train(loader, n_procs=8):
    accelerator = Accelerator()
    assert accelerator.num_processes == n_procs
    model = AutoModelForCausalLM.from_pretrained("gpt2")
    optimizer = torch.optim.AdamW(model.parameters())
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    for batch in loader:
        total = accelerator.reduce((batch["labels"] != -100).sum(), "sum")
        loss = loss_of(model(batch["input_ids"]).logits, batch["labels"], total, n_procs)
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
