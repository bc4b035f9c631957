# mlfoundations/open_clip, issues 616 and 894 - https://github.com/mlfoundations/open_clip/issues/894 (read)
# With local_loss every process only computes the rows of its own images and texts. Gathered features without
# gradient then never receive the gradient they owe to the rows on other processes.
"""CLIP loss on local rows against the features of all processes (model wrapped in DDP)."""
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn


def gather_features(image_features, text_features):
    world_size = dist.get_world_size()
    gathered_image_features = [torch.zeros_like(image_features) for _ in range(world_size)]
    gathered_text_features = [torch.zeros_like(text_features) for _ in range(world_size)]
    dist.all_gather(gathered_image_features, image_features)  # BUG: the local loss needs gradients of all_*
    dist.all_gather(gathered_text_features, text_features)
    return torch.cat(gathered_image_features, dim=0), torch.cat(gathered_text_features, dim=0)


class ClipLoss(nn.Module):
    """ClipLoss(local_loss=True)"""

    def get_logits(self, image_features, text_features, logit_scale):
        all_image_features, all_text_features = gather_features(image_features, text_features)
        logits_per_image = logit_scale * image_features @ all_text_features.T
        logits_per_text = logit_scale * text_features @ all_image_features.T
        return logits_per_image, logits_per_text

    def forward(self, image_features, text_features, logit_scale):
        logits_per_image, logits_per_text = self.get_logits(image_features, text_features, logit_scale)
        n = logits_per_image.shape[0]
        labels = torch.arange(n, device=image_features.device, dtype=torch.long) + n * dist.get_rank()
        return (F.cross_entropy(logits_per_image, labels) + F.cross_entropy(logits_per_text, labels)) / 2
