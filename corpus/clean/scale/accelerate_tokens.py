"""Accelerate in a plain script: the tokens of all processes are counted, and the average that `prepare` brings is undone."""
import torch
import torch.nn.functional as F
from accelerate import Accelerator


def run(net, data, lr):
    accelerator = Accelerator(mixed_precision="bf16")
    optimizer = torch.optim.AdamW(net.parameters(), lr=lr)
    net, optimizer, data = accelerator.prepare(net, optimizer, data)
    for ids, labels in data:
        count = (labels != -100).sum()
        total = accelerator.reduce(count, reduction="sum")
        summed = F.cross_entropy(net(ids).flatten(0, 1), labels.flatten(), reduction="sum")
        loss = summed * accelerator.num_processes / total
        accelerator.backward(loss)
        accelerator.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        accelerator.print(accelerator.gather(loss.detach()).mean().item())
