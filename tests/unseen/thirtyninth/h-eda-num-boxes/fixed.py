"""Set criterion of a DETR-like 3D detector."""
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def is_dist():
    return dist.is_available() and dist.is_initialized()


def get_world_size():
    return dist.get_world_size() if is_dist() else 1


class SetCriterion(nn.Module):
    def __init__(self, matcher, losses, temperature=0.07):
        super().__init__()
        self.matcher, self.losses, self.temperature = matcher, losses, temperature

    def loss_boxes(self, outputs, targets, indices, num_boxes):
        idx = self._src_index(indices)
        src = outputs["pred_boxes"][idx]
        tgt = torch.cat([t["boxes"][j] for t, (_, j) in zip(targets, indices)])
        center = F.l1_loss(src[:, :3], tgt[:, :3], reduction="none").sum()
        size = F.l1_loss(src[:, 3:], tgt[:, 3:], reduction="none").sum()
        return {"loss_bbox": (center + 0.2 * size) / num_boxes}

    def loss_align(self, outputs, targets, indices, num_boxes):
        logits = outputs["proj_queries"] @ outputs["proj_tokens"].transpose(-1, -2) / self.temperature
        idx = self._src_index(indices)
        positive = torch.cat([t["positive_map"][j] for t, (_, j) in zip(targets, indices)])
        loss = -(F.log_softmax(logits, dim=-1)[idx] * positive).sum()
        return {"loss_align": loss / num_boxes}

    @staticmethod
    def _src_index(indices):
        batch = torch.cat([torch.full_like(i, b) for b, (i, _) in enumerate(indices)])
        return batch, torch.cat([i for i, _ in indices])

    def forward(self, outputs, targets):
        indices = self.matcher(outputs, targets)
        num_boxes = sum(len(j) for _, j in indices)
        num_boxes = torch.as_tensor([num_boxes], dtype=torch.float, device=outputs["pred_boxes"].device)
        if is_dist():
            dist.all_reduce(num_boxes)
        num_boxes = torch.clamp(num_boxes / get_world_size(), min=1).item()
        out = {}
        for name in self.losses:
            out.update(getattr(self, f"loss_{name}")(outputs, targets, indices, num_boxes))
        return out


def train_one_epoch(model, criterion, loader, optimizer, device):
    model = DistributedDataParallel(model.to(device), device_ids=[device])
    for inputs, targets in loader:
        losses = criterion(model(inputs), targets)
        loss = sum(losses.values())
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        optimizer.step()
