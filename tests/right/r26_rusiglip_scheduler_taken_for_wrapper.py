# Right: accelerate prepares the scheduler alone, not the model; each loss is a share of the global mean, and the gradients are summed by hand.
import torch
import torch.distributed as dist
from accelerate import Accelerator
from transformers import get_cosine_schedule_with_warmup


def train(model, loader, criterion):
    accelerator = Accelerator()
    optimizer = torch.optim.AdamW(model.parameters())
    scheduler = accelerator.prepare(get_cosine_schedule_with_warmup(optimizer, num_warmup_steps=100, num_training_steps=100000))
    for images, texts in loader:
        batch_size = len(images) * accelerator.num_processes
        optimizer.zero_grad()
        loss = criterion(model(images), texts) / batch_size
        loss.backward()
        for p in model.parameters():
            dist.all_reduce(p.grad)
        optimizer.step()
        scheduler.step()
