# thread: https://github.com/galilai-group/stable-pretraining/pull/409
"""Multimodal contrastive losses and the distributed helpers behind them."""
import torch
import torch.distributed as dist
import torch.distributed.nn.functional
import torch.nn.functional as F
from torch import nn


def is_dist_avail_and_initialized() -> bool:
    return dist.is_available() and dist.is_initialized()


def get_rank() -> int:
    return dist.get_rank() if is_dist_avail_and_initialized() else 0


def all_gather(tensor, *args, **kwargs):
    """Gather ``tensor`` from all processes with gradients; a tuple of one without a process group."""
    if is_dist_avail_and_initialized():
        return torch.distributed.nn.functional.all_gather(tensor, *args, **kwargs)
    return (tensor,)


def all_reduce(tensor, *args, **kwargs):
    if is_dist_avail_and_initialized():
        return torch.distributed.nn.functional.all_reduce(tensor, *args, **kwargs)
    return tensor


class InfoNCELoss(nn.Module):
    def __init__(self, temperature: float = 0.07):
        super().__init__()
        self.temperature = temperature

    def _compute(self, anchors, candidates, targets, logit_scale=None):
        scale = 1.0 / self.temperature if logit_scale is None else logit_scale
        logits = scale * anchors @ candidates.t()
        return F.cross_entropy(logits, targets)


class CLIPLoss(InfoNCELoss):
    """Symmetric loss over matched image / text features of the global batch."""

    def forward(self, feats_i, feats_j, logit_scale=None):
        feats_i = F.normalize(feats_i, dim=-1)
        feats_j = F.normalize(feats_j, dim=-1)
        all_i = torch.cat(all_gather(feats_i), dim=0)
        all_j = torch.cat(all_gather(feats_j), dim=0)
        n = feats_i.size(0)
        targets = torch.arange(n, device=feats_i.device)
        if all_j.size(0) > n:
            targets = targets + n * get_rank()
        loss_i = self._compute(feats_i, all_j, targets, logit_scale)
        loss_j = self._compute(feats_j, all_i, targets, logit_scale)
        return 0.5 * (loss_i + loss_j)


class CLIPModule(nn.Module):
    def __init__(self, vision, text, embed_dim, proj_dim=512):
        super().__init__()
        self.vision, self.text = vision, text
        self.vision_proj = nn.Linear(embed_dim, proj_dim, bias=False)
        self.text_proj = nn.Linear(embed_dim, proj_dim, bias=False)
        self.log_scale = nn.Parameter(torch.tensor(2.6592))

    def forward(self, images, tokens):
        zi = self.vision_proj(self.vision(images))
        zt = self.text_proj(self.text(tokens))
        return zi, zt, self.log_scale.exp().clamp(max=100.0)


def fit(module, loader, optimizer, scheduler, device, epochs):
    criterion = CLIPLoss()
    ddp = nn.parallel.DistributedDataParallel(module.to(device), device_ids=[device.index])
    for epoch in range(epochs):
        loader.sampler.set_epoch(epoch)
        ddp.train()
        for batch in loader:
            images, tokens = batch["image"].to(device), batch["text"].to(device)
            with torch.autocast("cuda", dtype=torch.bfloat16):
                zi, zt, scale = ddp(images, tokens)
            loss = criterion(zi.float(), zt.float(), scale)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            scheduler.step()
        mean = all_reduce(loss.detach()) / dist.get_world_size()
        if get_rank() == 0:
            print(f"epoch {epoch}: loss {mean.item():.4f}")
