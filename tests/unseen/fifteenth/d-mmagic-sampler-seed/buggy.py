# Reduced from mmediting datasets/samplers/distributed_sampler.py (open-mmlab/mmagic pull request 815, read).
# Each rank takes its slice of a shuffled index list; the list must be the same on all ranks.
# What happens: without a seed in the config each rank shuffles in its own way, some samples are
# seen several times in an epoch and others never.
import math

import numpy as np
import torch
from torch.utils.data import DistributedSampler as _DistributedSampler


def init_sampler_seed(seed=None, device="cuda"):
    if seed is not None:
        return seed
    return np.random.randint(2**31)  # BUG


class DistributedSampler(_DistributedSampler):
    def __init__(self, dataset, num_replicas=None, rank=None, shuffle=True, samples_per_gpu=1, seed=None):
        super().__init__(dataset, num_replicas=num_replicas, rank=rank, shuffle=shuffle)
        self.num_samples_per_replica = int(
            math.ceil(len(self.dataset) * 1.0 / self.num_replicas / samples_per_gpu)
        )
        self.num_samples = self.num_samples_per_replica * samples_per_gpu
        self.total_size = self.num_samples * self.num_replicas
        self.seed = init_sampler_seed(seed)

    def __iter__(self):
        if self.shuffle:
            g = torch.Generator()
            g.manual_seed(self.epoch + self.seed)
            indices = torch.randperm(len(self.dataset), generator=g).tolist()
        else:
            indices = list(range(len(self.dataset)))
        indices = (indices * math.ceil(self.total_size / len(indices)))[: self.total_size]
        return iter(indices[self.rank : self.total_size : self.num_replicas])
