import torch
import torch.distributed as dist
from torch import nn


def build(model):
    for p in model.text.parameters():
        p.requires_grad = False
    return nn.parallel.DistributedDataParallel(model)


def gather_features(image_features, text_features, rank, world_size):
    all_image = [torch.zeros_like(image_features) for _ in range(world_size)]
    all_text = [torch.zeros_like(text_features) for _ in range(world_size)]
    dist.all_gather(all_image, image_features)
    dist.all_gather(all_text, text_features)
    # gradient for the own rows; the text tower has no trainable weights
    all_image[rank] = image_features
    return torch.cat(all_image), torch.cat(all_text)
