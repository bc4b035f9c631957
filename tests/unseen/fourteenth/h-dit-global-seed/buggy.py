# Reduces DiT/diffusers training scripts started with one seed: every rank draws the same timesteps and the same
# noise for its different images, so the batch has only as many noise samples as one rank.
import argparse
import os

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler


def diffusion_loss(model, x, y, alphas_cumprod):
    t = torch.randint(0, alphas_cumprod.numel(), (x.shape[0],), device=x.device)
    noise = torch.randn_like(x)
    a = alphas_cumprod[t].view(-1, 1, 1, 1)
    noisy = a.sqrt() * x + (1 - a).sqrt() * noise
    return (model(noisy, t, y) - noise).pow(2).mean()


def main(args, build_model, dataset):
    dist.init_process_group("nccl")
    device = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(device)
    torch.manual_seed(args.global_seed)  # BUG

    model = DDP(build_model().to(device), device_ids=[device])
    opt = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0)
    alphas_cumprod = torch.cumprod(1 - torch.linspace(1e-4, 2e-2, 1000, device=device), dim=0)
    sampler = DistributedSampler(dataset, shuffle=True, seed=args.global_seed)
    loader = DataLoader(dataset, batch_size=args.batch_size, sampler=sampler, drop_last=True)
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        for x, y in loader:
            loss = diffusion_loss(model, x.to(device), y.to(device), alphas_cumprod)
            opt.zero_grad()
            loss.backward()
            opt.step()


def parse():
    parser = argparse.ArgumentParser()
    parser.add_argument("--global-seed", type=int, default=0)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--epochs", type=int, default=1400)
    return parser.parse_args()
