"""Data parallelism by hand: a seed for equal starts, its own partition of the data, gradients averaged before the step."""

from math import ceil
from random import Random

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
import torch.optim as optim


class Partition:
    def __init__(self, data, index):
        self.data, self.index = data, index

    def __len__(self):
        return len(self.index)

    def __getitem__(self, item):
        return self.data[self.index[item]]


def partition_dataset(dataset, batch):
    size, rank = dist.get_world_size(), dist.get_rank()
    indexes = list(range(len(dataset)))
    Random(1234).shuffle(indexes)
    share = len(indexes) // size
    own = Partition(dataset, indexes[rank * share : (rank + 1) * share])
    per_rank = batch // size
    return torch.utils.data.DataLoader(own, batch_size=per_rank, shuffle=True), ceil(share / per_rank)


def average_gradients(model):
    size = float(dist.get_world_size())
    for param in model.parameters():
        if param.grad is None:
            continue
        dist.all_reduce(param.grad.data, op=dist.ReduceOp.SUM)
        param.grad.data /= size


def run(dataset):
    # The same seed on all ranks, so that all start with the same parameters.
    torch.manual_seed(1234)
    loader, batches = partition_dataset(dataset, 128)
    model = nn.Sequential(nn.Conv2d(1, 16, 5), nn.ReLU(), nn.Flatten(), nn.Linear(16 * 24 * 24, 10)).cuda()
    optimizer = optim.SGD(model.parameters(), lr=0.01, momentum=0.5)
    for epoch in range(10):
        epoch_loss = 0.0
        for data, target in loader:
            optimizer.zero_grad()
            output = F.log_softmax(model(data.cuda()), dim=1)
            loss = F.nll_loss(output, target.cuda())
            epoch_loss += loss.item()
            loss.backward()
            average_gradients(model)
            optimizer.step()
        print(f"rank {dist.get_rank()}, epoch {epoch}: {epoch_loss / batches}")


def main(dataset):
    dist.init_process_group(backend="nccl", init_method="env://")
    torch.cuda.set_device(dist.get_rank() % torch.cuda.device_count())
    run(dataset)
    dist.destroy_process_group()
