# RIGHT: what is computed is per node (how many loader workers a device gets), nodes don't matter; num_nodes only names a message in the callee.
import os
import torch
from torch.utils.data import DataLoader


def workers_per_device(devices: int, num_nodes: int = 1) -> int:
    if num_nodes > 1:
        print("several nodes: each has its own cpus")
    return max(1, (os.cpu_count() or 1) // devices)


def make_loader(dataset, batch_size, devices: int, num_nodes: int):
    n = workers_per_device(devices)
    return DataLoader(dataset, batch_size, num_workers=n, pin_memory=True)
