# Reduced from transformers models/deta/modeling_deta.py (huggingface/transformers pull request 27990, read).
# Box losses are sums over the matched boxes divided by the number of target boxes. DDP averages the
# gradients of ranks with different numbers of boxes.
# What happens: boxes on a rank with few of them weigh more; the loss depends on how images are dealt.
import torch
import torch.nn as nn
import torch.nn.functional as F
from transformers.image_transforms import center_to_corners_format
from transformers.loss.loss_for_object_detection import generalized_box_iou


class DetaLoss(nn.Module):
    def __init__(self, matcher, losses=("boxes",)):
        super().__init__()
        self.matcher, self.losses = matcher, losses

    def _get_source_permutation_idx(self, indices):
        batch_idx = torch.cat([torch.full_like(source, i) for i, (source, _) in enumerate(indices)])
        return batch_idx, torch.cat([source for source, _ in indices])

    def loss_boxes(self, outputs, targets, indices, num_boxes):
        idx = self._get_source_permutation_idx(indices)
        source_boxes = outputs["pred_boxes"][idx]
        target_boxes = torch.cat([t["boxes"][i] for t, (_, i) in zip(targets, indices)], dim=0)
        loss_bbox = F.l1_loss(source_boxes, target_boxes, reduction="none")
        loss_giou = 1 - torch.diag(
            generalized_box_iou(center_to_corners_format(source_boxes), center_to_corners_format(target_boxes))
        )
        return {"loss_bbox": loss_bbox.sum() / num_boxes, "loss_giou": loss_giou.sum() / num_boxes}

    def forward(self, outputs, targets):
        indices = self.matcher(outputs, targets)
        num_boxes = sum(len(t["class_labels"]) for t in targets)
        num_boxes = torch.as_tensor([num_boxes], dtype=torch.float, device=outputs["logits"].device)
        num_boxes = torch.clamp(num_boxes, min=1).item()  # BUG
        losses = {}
        for loss in self.losses:
            losses.update(getattr(self, f"loss_{loss}")(outputs, targets, indices, num_boxes))
        return losses
