"""Flow matching training of an action expert, data parallel."""
import dataclasses
import os
import random

import numpy as np
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler


@dataclasses.dataclass
class FlowConfig:
    seed: int = 42
    batch_size: int = 32
    epochs: int = 50
    lr: float = 1e-4
    alpha: float = 1.5
    beta: float = 1.0
    ema: float = 0.999
    workers: int = 4


def set_seed(seed):
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)
    torch.cuda.manual_seed_all(seed)


class FlowMatching(nn.Module):
    def __init__(self, network, alpha, beta):
        super().__init__()
        self.network = network
        self.alpha, self.beta = alpha, beta

    def sample_time(self, count, device):
        first = torch.rand(count, device=device).pow(1 / self.alpha)
        second = torch.rand(count, device=device).pow(1 / self.beta)
        return (first / (first + second)) * 0.999 + 0.001

    def forward(self, observations, actions):
        noise = torch.randn_like(actions)
        time = self.sample_time(actions.size(0), actions.device)
        t = time[:, None, None]
        noisy = t * noise + (1 - t) * actions
        velocity = self.network(observations, noisy, time)
        return F.mse_loss(velocity, noise - actions)


class Ema:
    def __init__(self, module, decay):
        self.decay = decay
        self.shadow = {k: v.detach().clone() for k, v in module.state_dict().items()}

    @torch.no_grad()
    def update(self, module):
        for name, value in module.state_dict().items():
            if value.dtype.is_floating_point:
                self.shadow[name].lerp_(value, 1 - self.decay)
            else:
                self.shadow[name].copy_(value)


def main(cfg, network, dataset, path):
    dist.init_process_group("nccl")
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
    set_seed(cfg.seed)  # BUG

    model = DDP(FlowMatching(network, cfg.alpha, cfg.beta).to(device), device_ids=[device.index])
    ema = Ema(model.module, cfg.ema)
    optimizer = torch.optim.AdamW(model.parameters(), lr=cfg.lr, weight_decay=1e-6)
    sampler = DistributedSampler(dataset, shuffle=True, seed=cfg.seed, drop_last=True)
    loader = DataLoader(
        dataset, cfg.batch_size, sampler=sampler, num_workers=cfg.workers, drop_last=True, pin_memory=True
    )
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, cfg.epochs * len(loader))
    for epoch in range(cfg.epochs):
        sampler.set_epoch(epoch)
        for observations, actions in loader:
            loss = model(observations.to(device), actions.to(device))
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            ema.update(model.module)
        if dist.get_rank() == 0:
            torch.save({"ema": ema.shadow, "epoch": epoch}, path)
        dist.barrier()
    dist.destroy_process_group()
