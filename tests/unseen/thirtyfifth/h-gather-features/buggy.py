"""Contrastive training of a point-cloud encoder against text, negatives from all ranks."""
# thread: 3dlg-hcvc/DuoduoCLIP#10
import torch
import torch.distributed as dist
import torch.distributed.nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP


def gather_features(feat):
    out = [torch.zeros_like(feat) for _ in range(dist.get_world_size())]
    dist.all_gather(out, feat)  # BUG: no gradient flows back to the rank that made the negatives
    return torch.cat(out, dim=0)


def contrastive_loss(pts, txt, logit_scale):
    # this rank's rows against the columns of all ranks
    labels = torch.arange(pts.size(0), device=pts.device) + dist.get_rank() * pts.size(0)
    pts_logits = logit_scale * pts @ gather_features(txt).t()
    txt_logits = logit_scale * txt @ gather_features(pts).t()
    return (F.cross_entropy(pts_logits, labels) + F.cross_entropy(txt_logits, labels)) / 2


def fit(model, loader, optimizer, local_rank):
    ddp = DDP(model, device_ids=[local_rank])
    for points, tokens in loader:  # equal batch on every rank
        pts, txt, logit_scale = ddp(points, tokens)
        loss = contrastive_loss(F.normalize(pts, dim=-1), F.normalize(txt, dim=-1), logit_scale)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
