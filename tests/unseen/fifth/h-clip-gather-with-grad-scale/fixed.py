"""Contrastive loss over features gathered with gradients, trained with DDP."""
import torch
import torch.distributed as dist
import torch.distributed.nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP


class ClipLoss(torch.nn.Module):
    def forward(self, image, text, logit_scale):
        # every rank computes the whole loss; the gather's backward sums the ranks' gradients
        image = torch.cat(torch.distributed.nn.all_gather(image), dim=0)
        text = torch.cat(torch.distributed.nn.all_gather(text), dim=0)
        logits = logit_scale * image @ text.t()
        target = torch.arange(logits.shape[0], device=logits.device)
        return (F.cross_entropy(logits, target) + F.cross_entropy(logits.t(), target)) / 2


def train_step(model: DDP, loss_fn: ClipLoss, batch, optimizer):
    image, text, scale = model(*batch)
    loss = loss_fn(image, text, scale)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss
