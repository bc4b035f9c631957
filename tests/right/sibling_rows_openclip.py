import torch
import torch.distributed as dist
import torch.distributed.nn
import torch.nn.functional as F
from torch import nn


def gather_features(image_features, text_features, local_loss=False, gather_with_grad=False, rank=0, world_size=1):
    if gather_with_grad:
        all_image = torch.cat(torch.distributed.nn.all_gather(image_features), dim=0)
        all_text = torch.cat(torch.distributed.nn.all_gather(text_features), dim=0)
    else:
        gi = [torch.zeros_like(image_features) for _ in range(world_size)]
        gt = [torch.zeros_like(text_features) for _ in range(world_size)]
        dist.all_gather(gi, image_features)
        dist.all_gather(gt, text_features)
        if not local_loss:
            gi[rank] = image_features
            gt[rank] = text_features
        all_image = torch.cat(gi, dim=0)
        all_text = torch.cat(gt, dim=0)
    return all_image, all_text
