"""Set criterion of a grounding detector."""
# thread: nickgkan/butd_detr#48
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class SetCriterion(nn.Module):
    def __init__(self, matcher, weight_dict):
        super().__init__()
        self.matcher, self.weight_dict = matcher, weight_dict

    def loss_boxes(self, outputs, targets, indices, num_boxes):
        src = torch.cat([o[i] for o, (i, _) in zip(outputs["pred_boxes"], indices)])
        tgt = torch.cat([t["boxes"][j] for t, (_, j) in zip(targets, indices)])
        return {"loss_bbox": F.l1_loss(src, tgt, reduction="sum") / num_boxes}

    def forward(self, outputs, targets):
        indices = self.matcher(outputs, targets)
        num_boxes = sum(len(t["boxes"]) for t in targets)
        num_boxes = torch.as_tensor([num_boxes], dtype=torch.float, device=outputs["pred_boxes"].device)
        dist.all_reduce(num_boxes)
        num_boxes = torch.clamp(num_boxes / dist.get_world_size(), min=1).item()
        losses = self.loss_boxes(outputs, targets, indices, num_boxes)
        return sum(self.weight_dict[k] * v for k, v in losses.items())


def train_one_epoch(model, criterion, loader, optimizer, local_rank):
    ddp = DDP(model, device_ids=[local_rank])
    for samples, targets in loader:
        loss = criterion(ddp(samples), targets)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(ddp.parameters(), 0.1)
        optimizer.step()
