import torch
import torch.distributed as dist


def gather_for_supcon(features, image_feat, label_feat, rank, world):
    """label_feat: one-hot labels"""
    images = [torch.zeros_like(image_feat) for _ in range(world)]
    labels = [torch.zeros_like(label_feat) for _ in range(world)]
    dist.all_gather(images, image_feat)
    dist.all_gather(labels, label_feat)
    images[rank] = image_feat
    return torch.cat(images), torch.cat(labels)
