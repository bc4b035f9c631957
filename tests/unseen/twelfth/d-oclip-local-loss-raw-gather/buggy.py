"""CLIP loss with local logits (queries of this rank against the keys of all ranks), trained under DDP."""
import torch
import torch.distributed as dist
import torch.distributed.nn.functional as dist_nn
import torch.nn.functional as F


def gather_features(features):
    blocks = [torch.empty_like(features) for _ in range(dist.get_world_size())]
    dist.all_gather(blocks, features.contiguous())  # BUG: as keys of other ranks the features get no gradient
    return torch.cat(blocks, dim=0)


def gather_metric(value):
    return torch.stack(dist_nn.all_gather(value.detach()))


class ClipLoss(torch.nn.Module):
    def forward(self, image_features, text_features, logit_scale):
        # image_features, text_features: [n, d], normalised
        all_image, all_text = gather_features(image_features), gather_features(text_features)
        logits_per_image = logit_scale * image_features @ all_text.t()
        logits_per_text = logit_scale * text_features @ all_image.t()
        n = image_features.size(0)
        labels = torch.arange(n, device=image_features.device) + n * dist.get_rank()
        loss = (F.cross_entropy(logits_per_image, labels) + F.cross_entropy(logits_per_text, labels)) / 2
        return loss, gather_metric(loss).mean()
