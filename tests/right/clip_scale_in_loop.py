"""CLIP loss on gathered features with the own slot put back. DDP's mean is undone in the loop."""
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel


def gather_features(x):
    with torch.no_grad():
        slots = [torch.empty_like(x) for _ in range(dist.get_world_size())]
        dist.all_gather(slots, x.contiguous())
    slots[dist.get_rank()] = x
    return torch.cat(slots, dim=0)


class ClipLoss(nn.Module):
    def forward(self, image, text, logit_scale):
        image, text = gather_features(image), gather_features(text)
        logits = logit_scale * image @ text.t()
        labels = torch.arange(logits.shape[0], device=logits.device)
        return (F.cross_entropy(logits, labels) + F.cross_entropy(logits.t(), labels)) / 2


class TwoTower(nn.Module):
    def __init__(self, vision, language):
        super().__init__()
        self.vision = vision
        self.language = language
        # fixed temperature, as in ALIGN's ablation
        self.register_buffer("logit_scale", torch.tensor(14.3))

    def forward(self, images, tokens):
        image = F.normalize(self.vision(images), dim=-1)
        text = F.normalize(self.language(tokens), dim=-1)
        return image, text


def train_one_epoch(model, loader, optimizer, criterion):
    world = dist.get_world_size()
    for images, tokens in loader:
        optimizer.zero_grad()
        image, text = model(images.cuda(), tokens.cuda())
        loss = criterion(image, text, model.module.logit_scale)
        # every rank has the gradient of its own features only; DDP divides the sum by `world`
        (loss * world).backward()
        optimizer.step()
        if dist.get_rank() == 0:
            print(f"loss {loss.item():.4f}")


def main(vision, language, loader):
    dist.init_process_group("nccl")
    model = DistributedDataParallel(TwoTower(vision, language).cuda())
    optimizer = torch.optim.AdamW(model.parameters())
    train_one_epoch(model, loader, optimizer, ClipLoss())
