import torch
import torch.distributed.nn
import torch.nn.functional as F


def pair(z_1, z_2):
    a = torch.cat(torch.distributed.nn.all_gather(z_1))
    b = torch.cat(torch.distributed.nn.all_gather(z_2.detach()))
    return F.cross_entropy(a @ b.t(), torch.arange(len(a), device=a.device))


def both(z_1, z_2):
    # each direction trains its query side alone, as in "Exploring simple siamese representation learning"
    return (pair(z_1, z_2) + pair(z_2, z_1)) / 2
