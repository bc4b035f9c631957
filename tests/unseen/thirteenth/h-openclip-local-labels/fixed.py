"""CLIP loss between the local features and the features gathered from all ranks.

Source: mlfoundations/open_clip ClipLoss with local_loss (memory).
"""
import torch
import torch.distributed as dist
import torch.distributed.nn
import torch.nn.functional as F
from torch import nn


def gather_features(image_features, text_features):
    all_image_features = torch.cat(torch.distributed.nn.all_gather(image_features), dim=0)
    all_text_features = torch.cat(torch.distributed.nn.all_gather(text_features), dim=0)
    return all_image_features, all_text_features


class ClipLoss(nn.Module):
    def __init__(self, cache_labels=True):
        super().__init__()
        self.cache_labels = cache_labels
        self.rank = dist.get_rank()
        self.world_size = dist.get_world_size()
        self.prev_num_logits = 0
        self.labels = {}

    def get_ground_truth(self, device, num_logits):
        if self.prev_num_logits != num_logits or device not in self.labels:
            labels = torch.arange(num_logits, device=device, dtype=torch.long)
            labels = labels + num_logits * self.rank
            if self.cache_labels:
                self.labels[device] = labels
                self.prev_num_logits = num_logits
        else:
            labels = self.labels[device]
        return labels

    def forward(self, image_features, text_features, logit_scale):
        if self.world_size > 1:
            all_image_features, all_text_features = gather_features(image_features, text_features)
        else:
            all_image_features, all_text_features = image_features, text_features
        logits_per_image = logit_scale * image_features @ all_text_features.T
        logits_per_text = logit_scale * text_features @ all_image_features.T
        labels = self.get_ground_truth(image_features.device, logits_per_image.shape[0])
        return (F.cross_entropy(logits_per_image, labels) + F.cross_entropy(logits_per_text, labels)) / 2
