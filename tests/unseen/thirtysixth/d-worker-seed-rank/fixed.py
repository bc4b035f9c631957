# thread: https://github.com/huggingface/transformers/issues/37932
"""Data loading part of a trainer: samplers, loaders and the seeds of their workers."""
import os
import random
from dataclasses import dataclass
from functools import partial
from typing import Optional

import numpy as np
import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, Dataset, DistributedSampler, RandomSampler


def set_seed(seed: int):
    random.seed(seed)
    np.random.seed(seed % 2**32)
    torch.manual_seed(seed)
    if torch.cuda.is_available():
        torch.cuda.manual_seed_all(seed)


def seed_worker(worker_id: int, num_workers: int, rank: int):
    """Seeds python, numpy and torch inside a loader worker."""
    init_seed = torch.initial_seed() % 2**32
    worker_seed = num_workers * rank + init_seed
    set_seed(worker_seed)


@dataclass
class TrainingArguments:
    output_dir: str = "out"
    seed: int = 42
    data_seed: Optional[int] = None
    per_device_train_batch_size: int = 16
    dataloader_num_workers: int = 8
    dataloader_drop_last: bool = True
    num_train_epochs: int = 3
    learning_rate: float = 5e-5

    @property
    def world_size(self) -> int:
        return dist.get_world_size() if dist.is_initialized() else 1

    @property
    def process_index(self) -> int:
        return dist.get_rank() if dist.is_initialized() else 0


class AugmentedImages(Dataset):
    """Random crops and flips are drawn in the worker from the global generators."""

    def __init__(self, images, labels, crop=32, pad=4):
        self.images, self.labels, self.crop, self.pad = images, labels, crop, pad

    def __len__(self):
        return len(self.images)

    def __getitem__(self, i):
        img = np.pad(self.images[i], ((self.pad,) * 2, (self.pad,) * 2, (0, 0)), mode="reflect")
        y, x = np.random.randint(0, 2 * self.pad + 1, size=2)
        img = img[y : y + self.crop, x : x + self.crop]
        if random.random() < 0.5:
            img = img[:, ::-1]
        noise = torch.randn(3, self.crop, self.crop) * 0.02
        pixels = torch.from_numpy(np.ascontiguousarray(img)).permute(2, 0, 1).float() / 255 + noise
        return {"pixel_values": pixels, "labels": int(self.labels[i])}


class Trainer:
    def __init__(self, model, args: TrainingArguments, train_dataset):
        set_seed(args.seed)
        self.args = args
        device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", 0)))
        self.device = device
        self.model = model.to(device)
        if args.world_size > 1:
            self.model = torch.nn.parallel.DistributedDataParallel(self.model, device_ids=[device.index])
        self.train_dataset = train_dataset
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=args.learning_rate)

    def _get_train_sampler(self):
        seed = self.args.data_seed if self.args.data_seed is not None else self.args.seed
        if self.args.world_size > 1:
            return DistributedSampler(self.train_dataset, seed=seed, drop_last=self.args.dataloader_drop_last)
        generator = torch.Generator()
        generator.manual_seed(seed)
        return RandomSampler(self.train_dataset, generator=generator)

    def get_train_dataloader(self) -> DataLoader:
        params = {
            "batch_size": self.args.per_device_train_batch_size,
            "num_workers": self.args.dataloader_num_workers,
            "sampler": self._get_train_sampler(),
            "drop_last": self.args.dataloader_drop_last,
            "pin_memory": True,
        }
        params["worker_init_fn"] = partial(
            seed_worker, num_workers=self.args.dataloader_num_workers, rank=self.args.process_index
        )
        return DataLoader(self.train_dataset, **params)

    def train(self):
        loader = self.get_train_dataloader()
        for epoch in range(self.args.num_train_epochs):
            if isinstance(loader.sampler, DistributedSampler):
                loader.sampler.set_epoch(epoch)
            for batch in loader:
                logits = self.model(batch["pixel_values"].to(self.device))
                loss = torch.nn.functional.cross_entropy(logits, batch["labels"].to(self.device))
                loss.backward()
                self.optimizer.step()
                self.optimizer.zero_grad()
