# thread: https://github.com/NVIDIA-NeMo/Speech/pull/4033
"""Punctuation model data: ready-made batches divided over the processes."""
import numpy as np
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset


class BatchedTokens(Dataset):
    """Every item is a batch of equally long queries; the order changes each epoch."""

    def __init__(self, queries, labels, tokens_in_batch, seed):
        self.queries, self.labels = queries, labels
        self.tokens_in_batch, self.seed = tokens_in_batch, seed
        self.batches = self.pack()
        self.order = np.arange(len(self.batches))
        self.rank, self.world = dist.get_rank(), dist.get_world_size()

    def pack(self):
        order = sorted(range(len(self.queries)), key=lambda i: len(self.queries[i]))
        batches, current = [], []
        for i in order:
            longest = len(self.queries[i])
            if current and longest * (len(current) + 1) > self.tokens_in_batch:
                batches.append(current)
                current = []
            current.append(i)
        if current:
            batches.append(current)
        return batches

    def shuffle(self, epoch):
        self.order = np.random.permutation(len(self.batches))  # BUG

    def __len__(self):
        return len(self.batches) // self.world

    def __getitem__(self, index):
        rows = self.batches[self.order[index * self.world + self.rank]]
        width = max(len(self.queries[i]) for i in rows)
        ids = torch.zeros(len(rows), width, dtype=torch.long)
        labels = torch.full((len(rows), width), -100)
        for j, i in enumerate(rows):
            ids[j, : len(self.queries[i])] = torch.as_tensor(self.queries[i])
            labels[j, : len(self.labels[i])] = torch.as_tensor(self.labels[i])
        return ids, labels


def seed_everything(seed):
    """Dropout differs between the processes."""
    np.random.seed(seed + dist.get_rank())
    torch.manual_seed(seed + dist.get_rank())


def train(build_model, queries, labels, cfg, device):
    seed_everything(cfg.seed)
    dataset = BatchedTokens(queries, labels, cfg.tokens_in_batch, cfg.seed)
    model = DistributedDataParallel(build_model().to(device), device_ids=[device.index])
    optimizer = torch.optim.AdamW(model.parameters(), lr=cfg.lr)
    for epoch in range(cfg.epochs):
        dataset.shuffle(epoch)
        for ids, target in DataLoader(dataset, batch_size=None, num_workers=2):
            logits = model(ids.to(device))
            target = target.to(device)
            count = (target != -100).sum().float()
            dist.all_reduce(count)
            loss = F.cross_entropy(logits.transpose(1, 2), target, reduction="sum")
            (loss / count * dist.get_world_size()).backward()
            optimizer.step()
            optimizer.zero_grad()
