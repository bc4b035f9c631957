# Reduces DETR's SetCriterion: the box count is summed over the ranks and used as the divisor of a per-rank loss
# sum whose gradient is averaged over the ranks afterwards.
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn


class SetCriterion(nn.Module):
    def __init__(self, matcher, weight_dict):
        super().__init__()
        self.matcher = matcher
        self.weight_dict = weight_dict

    def loss_boxes(self, outputs, targets, indices, num_boxes):
        src = torch.cat([o[i] for o, (i, _) in zip(outputs["pred_boxes"], indices)])
        tgt = torch.cat([t["boxes"][j] for t, (_, j) in zip(targets, indices)])
        return F.l1_loss(src, tgt, reduction="none").sum() / num_boxes

    def forward(self, outputs, targets):
        indices = self.matcher(outputs, targets)
        num_boxes = sum(len(t["labels"]) for t in targets)
        num_boxes = torch.as_tensor([num_boxes], dtype=torch.float, device=outputs["pred_boxes"].device)
        dist.all_reduce(num_boxes)
        num_boxes = torch.clamp(num_boxes, min=1).item()  # BUG
        return {"loss_bbox": self.loss_boxes(outputs, targets, indices, num_boxes)}


def train_one_epoch(model, criterion, loader, optimizer, device, max_norm):
    model = nn.parallel.DistributedDataParallel(model, device_ids=[device])
    for samples, targets in loader:
        losses = criterion(model(samples.to(device)), targets)
        loss = sum(losses[k] * criterion.weight_dict[k] for k in losses)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), max_norm)
        optimizer.step()
