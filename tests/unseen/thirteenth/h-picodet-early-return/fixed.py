"""Box loss of a dense detector, normalised by the number of positives over all ranks.

Source: LibreYOLO/libreyolo PR #567.
"""
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn


def all_reduce_avg_scalar(value, device):
    t = torch.tensor(float(value), device=device)
    world_size = 1
    if dist.is_available() and dist.is_initialized():
        world_size = dist.get_world_size()
        dist.all_reduce(t, op=dist.ReduceOp.SUM)
    return (t.clamp(min=1.0) / world_size).item()


class PicoDetBoxLoss(nn.Module):
    def __init__(self, reg_max=7, loss_weight=2.0):
        super().__init__()
        self.reg_max, self.loss_weight = reg_max, loss_weight

    def forward(self, bbox_flat, targets, pos_mask):
        """bbox_flat: (N, 4) decoded boxes, targets: (N, 4), pos_mask: (N,)"""
        num_pos = int(pos_mask.sum().item())
        avg_factor = all_reduce_avg_scalar(num_pos, bbox_flat.device)
        if num_pos == 0:
            return bbox_flat.sum() * 0.0
        pred, target = bbox_flat[pos_mask], targets[pos_mask]
        loss = F.smooth_l1_loss(pred, target, reduction="sum")
        return self.loss_weight * loss / avg_factor


def train_one_epoch(model, criterion, assigner, loader, optimizer):
    """``model`` is wrapped in DistributedDataParallel."""
    for images, gt in loader:
        bbox_flat = model(images)
        targets, pos_mask = assigner(bbox_flat.detach(), gt)
        loss = criterion(bbox_flat, targets, pos_mask)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
