"""Contrastive loss of image and text features, each rank computing its own rows.

Source: open_clip, ClipLoss (from memory). With local_loss the rows of the logits are those of
this rank while the columns run over all ranks, so the matching column of row i is i plus the rows
of the ranks before. Without that offset all ranks but the first pull their samples towards the
captions of rank 0.
"""
import torch
import torch.distributed as dist
import torch.distributed.nn
import torch.nn.functional as F


def gather_features(image_features, text_features):
    all_image = torch.cat(torch.distributed.nn.all_gather(image_features), dim=0)
    all_text = torch.cat(torch.distributed.nn.all_gather(text_features), dim=0)
    return all_image, all_text


class ClipLoss(torch.nn.Module):
    def __init__(self, rank, world_size):
        super().__init__()
        self.rank, self.world_size = rank, world_size

    def get_ground_truth(self, device, num_logits):
        labels = torch.arange(num_logits, device=device, dtype=torch.long)
        if self.world_size > 1:
            labels = labels + num_logits * self.rank
        return labels

    def get_logits(self, image_features, text_features, logit_scale):
        if self.world_size > 1:
            all_image, all_text = gather_features(image_features, text_features)
        else:
            all_image, all_text = image_features, text_features
        logits_per_image = logit_scale * image_features @ all_text.t()
        logits_per_text = logit_scale * text_features @ all_image.t()
        return logits_per_image, logits_per_text

    def forward(self, image_features, text_features, logit_scale):
        per_image, per_text = self.get_logits(image_features, text_features, logit_scale)
        labels = self.get_ground_truth(image_features.device, per_image.shape[0])
        return (F.cross_entropy(per_image, labels) + F.cross_entropy(per_text, labels)) / 2


def train_step(ddp_model, images, texts, optimizer):
    loss_fn = ClipLoss(dist.get_rank(), dist.get_world_size())
    optimizer.zero_grad()
    image_features, text_features, logit_scale = ddp_model(images, texts)
    loss = loss_fn(F.normalize(image_features, dim=-1), F.normalize(text_features, dim=-1), logit_scale)
    loss.backward()
    optimizer.step()
    return loss.detach()
