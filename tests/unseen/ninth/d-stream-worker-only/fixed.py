"""Streaming pretraining data: packed token files that are read by many workers."""
import dataclasses
import os
import pathlib

import numpy as np
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, IterableDataset, get_worker_info


@dataclasses.dataclass
class StreamConfig:
    root: str
    seq_len: int = 2048
    batch_size: int = 8
    workers: int = 4
    seed: int = 11
    lr: float = 3e-4
    steps: int = 100_000


class TokenStream(IterableDataset):
    """Endless; the order of the files changes with every pass and is the same for all readers."""

    def __init__(self, root, seq_len, seed, rank, world_size):
        self.files = sorted(pathlib.Path(root).glob("*.bin"))
        self.seq_len, self.seed = seq_len, seed
        self.rank, self.world_size = rank, world_size

    def reader(self):
        info = get_worker_info()
        worker, workers = (info.id, info.num_workers) if info is not None else (0, 1)
        return self.rank * workers + worker, self.world_size * workers

    def windows(self, path):
        tokens = np.memmap(path, dtype=np.uint16, mode="r")
        for start in range(0, len(tokens) - self.seq_len, self.seq_len):
            window = tokens[start : start + self.seq_len + 1].astype(np.int64)
            yield torch.from_numpy(window)

    def __iter__(self):
        index, readers = self.reader()
        if len(self.files) < readers:
            raise ValueError(f"{len(self.files)} files are too few for {readers} readers")
        epoch = 0
        while True:
            order = np.random.default_rng(self.seed + epoch).permutation(len(self.files))
            for number in order[index::readers]:
                yield from self.windows(self.files[number])
            epoch += 1


class Pretrainer:
    def __init__(self, model, cfg):
        self.cfg = cfg
        self.device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
        torch.cuda.set_device(self.device)
        self.model = DDP(model.to(self.device), device_ids=[self.device.index])
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=cfg.lr, betas=(0.9, 0.95))
        self.schedule = torch.optim.lr_scheduler.CosineAnnealingLR(self.optimizer, cfg.steps)
        stream = TokenStream(cfg.root, cfg.seq_len, cfg.seed, dist.get_rank(), dist.get_world_size())
        self.loader = DataLoader(stream, cfg.batch_size, num_workers=cfg.workers, pin_memory=True)

    def step(self, window):
        window = window.to(self.device, non_blocking=True)
        logits = self.model(window[:, :-1])
        loss = F.cross_entropy(logits.flatten(0, 1).float(), window[:, 1:].flatten())
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.schedule.step()
        return loss.detach()

    def run(self):
        for number, window in zip(range(self.cfg.steps), self.loader):
            loss = self.step(window)
            if number % 100 == 0:
                dist.all_reduce(loss, op=dist.ReduceOp.AVG)
                if dist.get_rank() == 0:
                    print(f"step {number} loss {loss.item():.4f}")
