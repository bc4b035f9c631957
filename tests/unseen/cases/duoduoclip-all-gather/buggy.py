"""Contrastive loss between shapes and texts over the batches of all GPUs."""
# 3dlg-hcvc/DuoduoCLIP issue 10: dist.all_gather records no gradient; every feature in the loss is a constant.
import torch
import torch.distributed as dist
import torch.distributed.nn.functional
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP


class ShapeTextModel(nn.Module):
    def __init__(self, shape_encoder, text_dim, dim):
        super().__init__()
        self.shape_encoder = shape_encoder
        self.text_proj = nn.Linear(text_dim, dim, bias=False)
        self.logit_scale = nn.Parameter(torch.tensor(2.659))

    def forward(self, points, text):
        return self.shape_encoder(points), self.text_proj(text), self.logit_scale.exp()


def gather_features(pts_feat, text_feat):
    world = dist.get_world_size()
    if world > 1:
        pts_feat_all = [torch.zeros_like(pts_feat) for _ in range(world)]
        text_feat_all = [torch.zeros_like(text_feat) for _ in range(world)]
        dist.all_gather(pts_feat_all, pts_feat)  # BUG: not differentiable, and the own features are not put back
        dist.all_gather(text_feat_all, text_feat)
        pts_feat = torch.cat(pts_feat_all, dim=0)
        text_feat = torch.cat(text_feat_all, dim=0)
    return pts_feat, text_feat


def contrastive_loss(pts_feat, text_feat, logit_scale):
    pts_feat, text_feat = gather_features(pts_feat, text_feat)
    pts_feat = F.normalize(pts_feat, dim=-1)
    text_feat = F.normalize(text_feat, dim=-1)
    logits = logit_scale * pts_feat @ text_feat.t()
    labels = torch.arange(logits.shape[0], device=logits.device)
    return (F.cross_entropy(logits, labels) + F.cross_entropy(logits.t(), labels)) / 2


def train(model, loader, lr, local_rank):
    dist.init_process_group("nccl")
    model = DDP(model.to(local_rank), device_ids=[local_rank])
    optimizer = torch.optim.AdamW(model.parameters(), lr=lr)
    for points, text in loader:
        loss = contrastive_loss(*model(points, text))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
