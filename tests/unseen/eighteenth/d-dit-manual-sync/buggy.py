"""Diffusion training without a wrapper: gradients are averaged by hand.

Source: training scripts in the style of DiT with the DDP wrapper removed (from memory). Each rank
has its own seed, for noise and timesteps. The model is made under that seed too, and without DDP
nobody spreads the weights of rank 0: the ranks apply the same gradients to different models.
"""
from copy import deepcopy

import torch
import torch.distributed as dist


@torch.no_grad()
def update_ema(ema_model, model, decay=0.9999):
    for e, p in zip(ema_model.parameters(), model.parameters()):
        e.mul_(decay).add_(p, alpha=1 - decay)


@torch.no_grad()
def average_gradients(model):
    world_size = dist.get_world_size()
    for p in model.parameters():
        if p.requires_grad:
            dist.all_reduce(p.grad)
            p.grad.div_(world_size)


def main(args, model_cls, diffusion, loader):
    rank = dist.get_rank()
    device = torch.device("cuda", rank % torch.cuda.device_count())
    torch.cuda.set_device(device)
    torch.manual_seed(args.global_seed * dist.get_world_size() + rank)

    model = model_cls(input_size=args.image_size // 8).to(device)  # BUG
    ema = deepcopy(model).requires_grad_(False)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0)
    for epoch in range(args.epochs):
        loader.sampler.set_epoch(epoch)
        for x, y in loader:
            x, y = x.to(device), y.to(device)
            t = torch.randint(0, diffusion.num_timesteps, (x.shape[0],), device=device)
            loss = diffusion.training_losses(model, x, t, dict(y=y))["loss"].mean()
            optimizer.zero_grad()
            loss.backward()
            average_gradients(model)
            optimizer.step()
            update_ema(ema, model)
        if rank == 0:
            torch.save({"model": model.state_dict(), "ema": ema.state_dict()}, args.checkpoint)
