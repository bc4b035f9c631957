"""CLIP loss on the local rows of the global similarity matrix."""
import torch
import torch.distributed as dist
import torch.distributed.nn
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def gather_features(features, world_size):
    gathered = torch.distributed.nn.all_gather(features)
    return torch.cat(gathered, dim=0)


class ClipLoss(nn.Module):
    def __init__(self, rank=0, world_size=1):
        super().__init__()
        self.rank, self.world_size = rank, world_size

    def get_logits(self, image_features, text_features, logit_scale):
        if self.world_size == 1:
            logits = logit_scale * image_features @ text_features.T
            return logits, logits.T
        all_image = gather_features(image_features, self.world_size)
        all_text = gather_features(text_features, self.world_size)
        return (
            logit_scale * image_features @ all_text.T,
            logit_scale * text_features @ all_image.T,
        )

    def forward(self, image_features, text_features, logit_scale):
        per_image, per_text = self.get_logits(image_features, text_features, logit_scale)
        n = per_image.shape[0]
        labels = torch.arange(n, device=per_image.device) + n * self.rank
        return (F.cross_entropy(per_image, labels) + F.cross_entropy(per_text, labels)) / 2


def train_one_epoch(clip, loader, optimizer, device):
    model = DistributedDataParallel(clip.to(device), device_ids=[device])
    loss_fn = ClipLoss(dist.get_rank(), dist.get_world_size())
    for images, texts in loader:
        optimizer.zero_grad()
        image_features, text_features, logit_scale = model(images.to(device), texts.to(device))
        loss = loss_fn(F.normalize(image_features, dim=-1), F.normalize(text_features, dim=-1), logit_scale)
        loss.backward()
        optimizer.step()
