# Reduces mmdetection's FCOS head: the normaliser of the box loss is averaged over the ranks only on ranks whose
# batch has positive points, so a rank without objects does not take part.
import torch
import torch.distributed as dist
import torch.nn.functional as F


def reduce_mean(tensor):
    tensor = tensor.clone()
    dist.all_reduce(tensor.div_(dist.get_world_size()), op=dist.ReduceOp.SUM)
    return tensor


def centerness_target(bbox_targets):
    left_right, top_bottom = bbox_targets[:, [0, 2]], bbox_targets[:, [1, 3]]
    ratio = (left_right.min(-1)[0] / left_right.max(-1)[0]) * (top_bottom.min(-1)[0] / top_bottom.max(-1)[0])
    return torch.sqrt(ratio)


class FCOSHead(torch.nn.Module):
    def __init__(self, num_classes):
        super().__init__()
        self.num_classes = num_classes

    def loss(self, cls_score, bbox_pred, centerness, labels, bbox_targets):
        pos = ((labels >= 0) & (labels < self.num_classes)).nonzero().reshape(-1)
        num_pos = reduce_mean(torch.tensor(float(len(pos)), device=cls_score.device)).clamp(min=1.0)
        onehot = F.one_hot(labels, self.num_classes + 1)[:, :-1].float()
        loss_cls = F.binary_cross_entropy_with_logits(cls_score, onehot, reduction="sum") / num_pos

        pos_bbox_pred, pos_centerness = bbox_pred[pos], centerness[pos]
        pos_targets = bbox_targets[pos]
        if len(pos) > 0:
            pos_centerness_targets = centerness_target(pos_targets)
            denorm = reduce_mean(pos_centerness_targets.sum().detach()).clamp(min=1e-6)  # BUG
            l1 = F.l1_loss(pos_bbox_pred, pos_targets, reduction="none").sum(-1)
            loss_bbox = (l1 * pos_centerness_targets).sum() / denorm
            loss_ctr = F.binary_cross_entropy_with_logits(
                pos_centerness, pos_centerness_targets, reduction="sum") / num_pos
        else:
            loss_bbox = pos_bbox_pred.sum()
            loss_ctr = pos_centerness.sum()
        return {"loss_cls": loss_cls, "loss_bbox": loss_bbox, "loss_centerness": loss_ctr}
