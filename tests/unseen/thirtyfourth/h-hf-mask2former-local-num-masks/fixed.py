# huggingface/transformers, issue 26844 - https://github.com/huggingface/transformers/issues/26844 (read)
# The mask losses are divided by the number of masks on this process. DDP averages the gradients, so a mask
# on a process with few of them weighs more; the original code uses the mean count over processes.
"""Loss of Mask2Former: the mask terms are normalised by the number of target masks."""
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn


def dice_loss(inputs, labels, num_masks):
    probs = inputs.sigmoid().flatten(1)
    numerator = 2 * (probs * labels).sum(-1)
    denominator = probs.sum(-1) + labels.sum(-1)
    return (1 - (numerator + 1) / (denominator + 1)).sum() / num_masks


def sigmoid_cross_entropy_loss(inputs, labels, num_masks):
    loss = F.binary_cross_entropy_with_logits(inputs, labels, reduction="none")
    return loss.mean(1).sum() / num_masks


class Mask2FormerLoss(nn.Module):
    def __init__(self, matcher):
        super().__init__()
        self.matcher = matcher

    def get_num_masks(self, class_labels, device):
        num_masks = sum(len(classes) for classes in class_labels)
        num_masks = torch.as_tensor([num_masks], dtype=torch.float, device=device)
        if dist.is_available() and dist.is_initialized():
            dist.all_reduce(num_masks)
            num_masks = num_masks / dist.get_world_size()
        return num_masks.clamp(min=1)

    def forward(self, masks_queries_logits, mask_labels, class_labels):
        src, tgt = self.matcher(masks_queries_logits, mask_labels, class_labels)  # matched pairs [n, h * w]
        num_masks = self.get_num_masks(class_labels, src.device)
        return {
            "loss_mask": sigmoid_cross_entropy_loss(src, tgt, num_masks),
            "loss_dice": dice_loss(src, tgt, num_masks),
        }
