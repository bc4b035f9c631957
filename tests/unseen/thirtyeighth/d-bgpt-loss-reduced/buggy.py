"""Training of a byte-level language model with DDP."""
# thread: sanderwood/bgpt#5
import os

import torch
import torch.distributed as dist
from torch.amp import GradScaler, autocast
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler
from transformers import GPT2Config, get_constant_schedule_with_warmup

from config import ACCUMULATION_STEPS, BATCH_SIZE, BYTE_NUM_LAYERS, HIDDEN_SIZE, LEARNING_RATE, PATCH_NUM_LAYERS
from utils import ByteDataset, bGPTLMHeadModel, collate_batch

world_size = int(os.environ.get("WORLD_SIZE", 1))
local_rank = int(os.environ.get("LOCAL_RANK", 0))
device = torch.device("cuda", local_rank)


def process_one_batch(model, batch):
    """Loss of this rank, and the mean over ranks for the progress bar."""
    input_patches, input_masks = batch
    loss = model(input_patches.to(device), input_masks.to(device)).loss
    if world_size > 1:
        loss = loss.unsqueeze(0)
        dist.all_reduce(loss.detach())
        loss = loss.squeeze(0) / world_size  # BUG: also divides the gradient, which DDP averages again
    return loss, loss.detach()


def train_epoch(model, loader, optimizer, scheduler, scaler):
    model.train()
    total, iters = 0.0, 0
    optimizer.zero_grad()
    for i, batch in enumerate(loader, 1):
        with autocast("cuda"):
            loss, reported = process_one_batch(model, batch)
        scaler.scale(loss / ACCUMULATION_STEPS).backward()
        if i % ACCUMULATION_STEPS == 0:
            scaler.step(optimizer)
            scaler.update()
            scheduler.step()
            optimizer.zero_grad()
        total += reported.item()
        iters += 1
    return total / iters


def main(filenames, epochs):
    dist.init_process_group("nccl")
    torch.cuda.set_device(device)
    patch_config = GPT2Config(num_hidden_layers=PATCH_NUM_LAYERS, hidden_size=HIDDEN_SIZE)
    byte_config = GPT2Config(num_hidden_layers=BYTE_NUM_LAYERS, hidden_size=HIDDEN_SIZE)
    model = bGPTLMHeadModel(patch_config, byte_config).to(device)
    model = DDP(model, device_ids=[local_rank])
    optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE)
    scheduler = get_constant_schedule_with_warmup(optimizer, num_warmup_steps=1000)
    dataset = ByteDataset(filenames)
    sampler = DistributedSampler(dataset)
    loader = DataLoader(dataset, batch_size=BATCH_SIZE, sampler=sampler, collate_fn=collate_batch)
    scaler = GradScaler("cuda")
    for epoch in range(epochs):
        sampler.set_epoch(epoch)
        loss = train_epoch(model, loader, optimizer, scheduler, scaler)
        if dist.get_rank() == 0:
            print(f"epoch {epoch} loss {loss:.4f}")
