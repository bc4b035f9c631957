import numpy as np
import torch
import torch.distributed as dist
from torch import nn


class Memory(nn.Module):
    def __init__(self, length, dim, classes):
        super().__init__()
        self.rank = dist.get_rank()
        self.classes = classes
        self.labels = torch.zeros((length,), dtype=torch.long)  # the same on every rank, all the time
        self.register_buffer("centroids", torch.zeros((classes, dim)))

    def update(self, idx, feature):
        idxs = [torch.empty_like(idx) for _ in range(dist.get_world_size())]
        features = [torch.empty_like(feature) for _ in range(dist.get_world_size())]
        dist.all_gather(idxs, idx)
        dist.all_gather(features, feature)
        idx, feature = torch.cat(idxs).cpu(), torch.cat(features)
        self.labels[idx] = (self.centroids @ feature.t()).argmax(dim=0).cpu()

    def deal_with_small_clusters(self, smallest):
        histogram = np.bincount(self.labels.numpy(), minlength=self.classes)
        for s in np.where(histogram < smallest)[0].tolist():
            idx = np.where(self.labels.numpy() == s)[0]
            if len(idx) > 0:
                if self.rank == 0:
                    target = torch.randint(self.classes, (idx.shape[0],)).cuda()
                else:
                    target = torch.zeros((idx.shape[0],), dtype=torch.int64).cuda()
                dist.all_reduce(target)
                self.labels[idx] = target.cpu()
