# thread: https://github.com/NVlabs/LongLive/issues/71
"""Diffusion trainer for long video generation."""
import os
import random
import time
from dataclasses import dataclass

import numpy as np
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler


@dataclass
class Config:
    seed: int = 0
    batch_size: int = 1
    lr: float = 1e-5
    max_iters: int = 10000
    log_iters: int = 200
    num_frame_per_block: int = 3
    max_grad_norm: float = 10.0
    logdir: str = "logs"
    mixed_precision: bool = True


def set_seed(seed: int):
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)
    torch.cuda.manual_seed_all(seed)


def cycle(loader):
    epoch = 0
    while True:
        loader.sampler.set_epoch(epoch)
        for data in loader:
            yield data
        epoch += 1


class FlowMatchScheduler:
    def __init__(self, shift=5.0, num_train_timesteps=1000):
        sigmas = torch.linspace(1.0, 0.0, num_train_timesteps + 1)[:-1]
        self.sigmas = shift * sigmas / (1 + (shift - 1) * sigmas)

    def add_noise(self, latents, noise, index):
        sigma = self.sigmas.to(latents)[index].view(*index.shape, 1, 1, 1)
        return (1 - sigma) * latents + sigma * noise


class Trainer:
    def __init__(self, config: Config, model, dataset):
        self.config = config
        self.step = 0
        dist.init_process_group("nccl")
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
        global_rank = dist.get_rank()
        self.is_main_process = global_rank == 0
        self.device = torch.cuda.current_device()
        self.dtype = torch.bfloat16 if config.mixed_precision else torch.float32

        # one base seed for the run, noise differs between ranks
        if config.seed == 0:
            random_seed = torch.randint(0, 10000000, (1,), device=self.device)
            dist.broadcast(random_seed, src=0)
            config.seed = random_seed.item()
        set_seed(config.seed + global_rank)

        self.model = FSDP(model, device_id=self.device, use_orig_params=True)
        self.scheduler = FlowMatchScheduler()
        self.optimizer = torch.optim.AdamW(
            [p for p in self.model.parameters() if p.requires_grad], lr=config.lr, betas=(0.9, 0.999)
        )
        sampler = DistributedSampler(dataset, shuffle=True, drop_last=True, seed=config.seed)
        loader = DataLoader(dataset, batch_size=config.batch_size, sampler=sampler, num_workers=8)
        self.dataloader = cycle(loader)

    def train_one_step(self, batch):
        latents = batch["latents"].to(device=self.device, dtype=self.dtype)
        prompt_embeds = batch["prompt_embeds"].to(device=self.device, dtype=self.dtype)
        b, f = latents.shape[:2]
        blocks = torch.randint(0, 1000, (b, f // self.config.num_frame_per_block), device=self.device)
        index = blocks.repeat_interleave(self.config.num_frame_per_block, dim=1)
        noise = torch.randn_like(latents)
        noisy = self.scheduler.add_noise(latents, noise, index)
        flow = self.model(noisy, index, prompt_embeds)
        loss = F.mse_loss(flow.float(), (noise - latents).float())
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        grad_norm = self.model.clip_grad_norm_(self.config.max_grad_norm)
        self.optimizer.step()
        return loss.detach(), grad_norm

    def train(self):
        start = time.time()
        while self.step < self.config.max_iters:
            loss, grad_norm = self.train_one_step(next(self.dataloader))
            self.step += 1
            if self.step % self.config.log_iters == 0:
                dist.all_reduce(loss, op=dist.ReduceOp.AVG)
                if self.is_main_process:
                    print(f"{self.step} loss {loss.item():.4f} norm {grad_norm:.3f} {time.time() - start:.0f}s")
