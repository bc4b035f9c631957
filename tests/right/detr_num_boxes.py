"""DETR: the sum is divided by the average number of boxes per rank, and DDP averages."""
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP


def get_world_size():
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


class SetCriterion(torch.nn.Module):
    def __init__(self, matcher, classes, weights):
        super().__init__()
        self.matcher, self.classes, self.weights = matcher, classes, weights

    def loss_boxes(self, outputs, targets, indices, num_boxes):
        src = torch.cat([o[i] for o, (i, _) in zip(outputs["boxes"], indices)])
        tgt = torch.cat([t["boxes"][j] for t, (_, j) in zip(targets, indices)])
        return F.l1_loss(src, tgt, reduction="none").sum() / num_boxes

    def forward(self, outputs, targets):
        indices = self.matcher(outputs, targets)
        num_boxes = sum(len(t["labels"]) for t in targets)
        num_boxes = torch.as_tensor([num_boxes], dtype=torch.float, device=outputs["boxes"].device)
        if get_world_size() > 1:
            dist.all_reduce(num_boxes)
        num_boxes = torch.clamp(num_boxes / get_world_size(), min=1).item()
        return {"boxes": self.loss_boxes(outputs, targets, indices, num_boxes)}


def reduce_dict(losses):
    n = get_world_size()
    if n < 2:
        return losses
    with torch.no_grad():
        names = sorted(losses)
        values = torch.stack([losses[k] for k in names])
        dist.all_reduce(values)
        values /= n
        return dict(zip(names, values))


def train_one_epoch(model, criterion, loader, optimizer, max_norm=0.1):
    for samples, targets in loader:
        losses = criterion(model(samples), targets)
        total = sum(losses[k] * criterion.weights[k] for k in losses)
        shown = reduce_dict(losses)
        optimizer.zero_grad()
        total.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm)
        optimizer.step()
        print({k: v.item() for k, v in shown.items()})


def main(net, criterion, loader):
    dist.init_process_group("nccl")
    model = DDP(net.cuda())
    train_one_epoch(model, criterion, loader, torch.optim.AdamW(model.parameters(), 1e-4))
