"""Contrastive loss over the embeddings of all ranks: gathered without gradient, with the own block put back, in two ways to average."""

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP


@torch.no_grad()
def gather_blocks(x):
    blocks = [torch.zeros_like(x) for _ in range(dist.get_world_size())]
    dist.all_gather(blocks, x.contiguous())
    return blocks


def all_embeddings(x):
    blocks = gather_blocks(x)
    blocks[dist.get_rank()] = x
    return torch.cat(blocks, dim=0)


class TwoTower(nn.Module):
    def __init__(self, image, text):
        super().__init__()
        self.image, self.text = image, text
        self.logit_scale = nn.Parameter(torch.tensor(2.6592), requires_grad=False)

    def forward(self, pixels, ids):
        return F.normalize(self.image(pixels), dim=-1), F.normalize(self.text(ids), dim=-1)


def clip_loss(image, text, scale):
    """The same number on all ranks; each has the part of the gradient that goes through its own samples."""
    image, text = all_embeddings(image), all_embeddings(text)
    logits = scale * image @ text.t()
    labels = torch.arange(logits.shape[0], device=logits.device)
    return (F.cross_entropy(logits, labels) + F.cross_entropy(logits.t(), labels)) / 2


def train_with_ddp(model, loader, optimizer):
    model = DDP(model.cuda(), device_ids=[torch.cuda.current_device()])
    for pixels, ids in loader:
        image, text = model(pixels.cuda(), ids.cuda())
        loss = clip_loss(image, text, model.module.logit_scale.exp())
        # The wrapper averages what has to be summed.
        (loss * dist.get_world_size()).backward()
        optimizer.step()
        optimizer.zero_grad()


def train_by_hand(model, loader, optimizer):
    for pixels, ids in loader:
        image, text = model(pixels.cuda(), ids.cuda())
        clip_loss(image, text, model.logit_scale.exp()).backward()
        for param in model.parameters():
            if param.grad is not None:
                dist.all_reduce(param.grad, op=dist.ReduceOp.SUM)
        optimizer.step()
        optimizer.zero_grad()
