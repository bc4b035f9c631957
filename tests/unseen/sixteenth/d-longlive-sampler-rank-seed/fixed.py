# NVlabs/LongLive issue 71, pull request 74
"""Data loading and training loop of a video diffusion trainer."""
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler


def set_seed(seed):
    torch.manual_seed(seed)
    torch.cuda.manual_seed_all(seed)


class Trainer:
    def __init__(self, config, model, dataset):
        self.config = config
        self.global_rank, self.world_size = dist.get_rank(), dist.get_world_size()
        self.device = torch.cuda.current_device()
        if config.seed == 0:
            random_seed = torch.full((1,), int(time.time()), dtype=torch.int64, device=self.device)
            dist.broadcast(random_seed, src=0)
            config.seed = random_seed.item()
        set_seed(config.seed + self.global_rank)  # noise and timesteps of this rank

        self.model = DDP(model.to(self.device), device_ids=[self.device])
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=config.lr)
        sampler_seed = self.config.seed
        self.sampler = DistributedSampler(
            dataset,
            num_replicas=self.world_size,
            rank=self.global_rank,
            shuffle=True,
            drop_last=True,
            seed=sampler_seed,
        )
        self.dataloader = DataLoader(
            dataset, batch_size=config.batch_size, sampler=self.sampler, num_workers=8, drop_last=True
        )

    def train_one_step(self, batch):
        clean = batch["latents"].to(self.device)
        noise = torch.randn_like(clean)
        timestep = torch.rand(clean.size(0), device=self.device)
        t = timestep.view(-1, *([1] * (clean.dim() - 1)))
        pred = self.model((1 - t) * clean + t * noise, timestep, batch["prompt_embeds"].to(self.device))
        loss = torch.nn.functional.mse_loss(pred, noise - clean)
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        self.optimizer.step()

    def train(self):
        for epoch in range(self.config.num_epochs):
            self.sampler.set_epoch(epoch)
            for batch in self.dataloader:
                self.train_one_step(batch)
