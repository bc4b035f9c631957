# Right: accelerate prepares the loader alone, not the model; each loss is a share of the global mean, and the gradients are summed by hand.
import torch
import torch.distributed as dist
from accelerate import Accelerator
from torch.utils.data import DataLoader


def train_epoch(accelerator, model, criterion, loader, optimizer):
    for images, texts in loader:
        batch_size = len(images) * accelerator.num_processes
        optimizer.zero_grad()
        loss = criterion(model(images), texts) / batch_size
        loss.backward()
        for p in model.parameters():
            dist.all_reduce(p.grad)
        optimizer.step()


def main(model, dataset, criterion):
    accelerator = Accelerator()
    optimizer = torch.optim.AdamW(model.parameters())
    loader = DataLoader(dataset, batch_size=8, num_workers=4, pin_memory=True, drop_last=True, shuffle=True)
    loader = accelerator.prepare(loader)
    train_epoch(accelerator, model, criterion, loader, optimizer)
