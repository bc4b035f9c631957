# nickgkan/butd_detr issue 48 (about yanmin-wu/EDA models/losses.py)
"""Set criterion of a DETR-like grounding model, trained with DistributedDataParallel."""
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn


def is_dist_avail_and_initialized():
    return dist.is_available() and dist.is_initialized()


def get_world_size():
    return dist.get_world_size() if is_dist_avail_and_initialized() else 1


class SetCriterion(nn.Module):
    def __init__(self, matcher, losses, eos_coef, num_classes):
        super().__init__()
        self.matcher, self.losses = matcher, losses
        weight = torch.ones(num_classes + 1)
        weight[-1] = eos_coef
        self.register_buffer("empty_weight", weight)

    def _get_src_permutation_idx(self, indices):
        batch_idx = torch.cat([torch.full_like(src, i) for i, (src, _) in enumerate(indices)])
        src_idx = torch.cat([src for src, _ in indices])
        return batch_idx, src_idx

    def loss_labels(self, outputs, targets, indices, num_boxes):
        idx = self._get_src_permutation_idx(indices)
        logits = outputs["pred_logits"].log_softmax(-1)
        target_classes = torch.full_like(logits[..., 0], logits.shape[-1] - 1, dtype=torch.long)
        target_classes[idx] = torch.cat([t["labels"][j] for t, (_, j) in zip(targets, indices)])
        loss = F.nll_loss(logits.transpose(1, 2), target_classes, self.empty_weight, reduction="none")
        return {"loss_ce": loss.sum() / num_boxes}

    def loss_boxes(self, outputs, targets, indices, num_boxes):
        idx = self._get_src_permutation_idx(indices)
        src_boxes = outputs["pred_boxes"][idx]
        target_boxes = torch.cat([t["boxes"][j] for t, (_, j) in zip(targets, indices)], dim=0)
        loss_bbox = F.l1_loss(src_boxes, target_boxes, reduction="none")
        return {"loss_bbox": loss_bbox.sum() / num_boxes}

    def forward(self, outputs, targets):
        indices = self.matcher(outputs, targets)
        num_boxes = sum(len(inds[1]) for inds in indices)
        num_boxes = torch.as_tensor([num_boxes], dtype=torch.float, device=outputs["pred_boxes"].device)
        if is_dist_avail_and_initialized():
            dist.all_reduce(num_boxes)
        num_boxes = torch.clamp(num_boxes / get_world_size(), min=1).item()
        losses = {}
        for name in self.losses:
            losses.update(getattr(self, f"loss_{name}")(outputs, targets, indices, num_boxes))
        return losses
