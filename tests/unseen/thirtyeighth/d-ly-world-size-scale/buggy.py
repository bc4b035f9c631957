"""Distributed training of the detectors."""
# thread: LibreYOLO/libreyolo#488
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP


def all_reduce_avg_scalar(value: torch.Tensor) -> torch.Tensor:
    """max(global sum, 1) / world_size."""
    if not (dist.is_available() and dist.is_initialized()):
        return value.clamp(min=1.0)
    value = value.detach().clone()
    dist.all_reduce(value)
    return value.clamp(min=1.0) / dist.get_world_size()


class YOLO9Loss:
    def __init__(self, assigner, box_gain=7.5, cls_gain=0.5, dfl_gain=1.5):
        self.assigner = assigner
        self.box_gain, self.cls_gain, self.dfl_gain = box_gain, cls_gain, dfl_gain

    def __call__(self, preds, targets):
        cls_logits, boxes, dfl = preds
        target_scores, target_boxes, fg_mask = self.assigner(cls_logits.detach(), boxes.detach(), targets)
        cls_norm = all_reduce_avg_scalar(target_scores.sum())
        loss_cls = F.binary_cross_entropy_with_logits(cls_logits, target_scores, reduction="sum") / cls_norm
        if fg_mask.any():
            weight = target_scores.sum(-1)[fg_mask]
            loss_box = ((1.0 - self.assigner.iou(boxes, target_boxes)[fg_mask]) * weight).sum() / cls_norm
            loss_dfl = (self.assigner.dfl(dfl, target_boxes)[fg_mask] * weight).sum() / cls_norm
        else:
            loss_box = boxes.sum() * 0.0
            loss_dfl = dfl.sum() * 0.0
        return self.box_gain * loss_box + self.cls_gain * loss_cls + self.dfl_gain * loss_dfl


class BaseTrainer:
    def __init__(self, model, loss_fn, optimizer, amp=True):
        self.distributed = dist.is_available() and dist.is_initialized()
        self.model = DDP(model, device_ids=[torch.cuda.current_device()]) if self.distributed else model
        self.loss_fn = loss_fn
        self.optimizer = optimizer
        self.scaler = torch.amp.GradScaler("cuda", enabled=amp)

    def train_step(self, images, targets, max_norm=10.0):
        with torch.autocast("cuda", enabled=self.scaler.is_enabled()):
            preds = self.model(images)
        loss = self.loss_fn([p.float() for p in preds], targets)
        if self.distributed:
            loss = loss * dist.get_world_size()  # BUG: the loss is normalised already, DDP's mean needs no correction

        self.optimizer.zero_grad()
        self.scaler.scale(loss).backward()
        self.scaler.unscale_(self.optimizer)
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), max_norm)
        self.scaler.step(self.optimizer)
        self.scaler.update()
        return loss.detach()
