"""Set criterion: box losses normalised by the number of target boxes."""
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class SetCriterion(nn.Module):
    def __init__(self, matcher):
        super().__init__()
        self.matcher = matcher

    def loss_boxes(self, outputs, targets, indices, num_boxes):
        src = torch.cat([o[i] for o, (i, _) in zip(outputs["pred_boxes"], indices)])
        tgt = torch.cat([t["boxes"][j] for t, (_, j) in zip(targets, indices)])
        return F.l1_loss(src, tgt, reduction="none").sum() / num_boxes

    def forward(self, outputs, targets):
        indices = self.matcher(outputs, targets)
        num_boxes = sum(len(t["labels"]) for t in targets)
        num_boxes = torch.as_tensor([num_boxes], dtype=torch.float, device=outputs["pred_boxes"].device)
        dist.all_reduce(num_boxes)
        num_boxes = torch.clamp(num_boxes, min=1).item()  # BUG: total over ranks where the mean per rank is meant
        return self.loss_boxes(outputs, targets, indices, num_boxes)


def train_one_epoch(model, criterion, loader, optimizer, device):
    model = DDP(model, device_ids=[device])
    for samples, targets in loader:
        loss = criterion(model(samples), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
