"""Diffusion trainer: data-parallel ranks share one shuffled pass over the clips."""
import time

import numpy as np
import torch
import torch.distributed as dist
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler


def set_seed(seed: int):
    np.random.seed(seed % 2**32)
    torch.manual_seed(seed)
    torch.cuda.manual_seed_all(seed)


class Trainer:
    def __init__(self, config, model, dataset):
        self.config = config
        global_rank = dist.get_rank()
        self.device = torch.cuda.current_device()

        if config.seed == 0:
            random_seed = torch.randint(0, 10000000, (1,), device=self.device)
            dist.broadcast(random_seed, src=0)
            config.seed = random_seed.item()
        set_seed(config.seed + global_rank)

        self.model = torch.nn.parallel.DistributedDataParallel(model.to(self.device), device_ids=[self.device])
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=config.lr)
        self.sampler = DistributedSampler(
            dataset, shuffle=True, drop_last=True, seed=int(time.time()) * global_rank  # BUG
        )
        self.loader = DataLoader(dataset, batch_size=config.batch_size, sampler=self.sampler, num_workers=8)

    def train(self):
        for epoch in range(self.config.epochs):
            self.sampler.set_epoch(epoch)
            for clip, prompt in self.loader:
                clip = clip.to(self.device)
                noise = torch.randn_like(clip)
                t = torch.rand(clip.size(0), device=self.device).view(-1, 1, 1, 1, 1)
                pred = self.model((1 - t) * clip + t * noise, t.flatten(), prompt)
                loss = torch.nn.functional.mse_loss(pred, noise - clip)
                self.optimizer.zero_grad()
                loss.backward()
                self.optimizer.step()
