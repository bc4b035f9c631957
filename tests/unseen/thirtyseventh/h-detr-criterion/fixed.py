# thread: none (from memory of DETR)
"""Set-prediction loss for object detection."""
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def world_size():
    return dist.get_world_size() if dist.is_initialized() else 1


def all_reduce_sum(tensor):
    if world_size() > 1:
        dist.all_reduce(tensor)
    return tensor


class SetCriterion(nn.Module):
    def __init__(self, num_classes, matcher, weights, no_object=0.1):
        super().__init__()
        self.num_classes, self.matcher, self.weights = num_classes, matcher, weights
        class_weight = torch.ones(num_classes + 1)
        class_weight[-1] = no_object
        self.register_buffer("class_weight", class_weight)

    @staticmethod
    def source_index(indices):
        batch = torch.cat([torch.full_like(src, i) for i, (src, _) in enumerate(indices)])
        return batch, torch.cat([src for src, _ in indices])

    def loss_labels(self, outputs, targets, indices):
        logits = outputs["pred_logits"]
        classes = torch.full(logits.shape[:2], self.num_classes, device=logits.device)
        matched = torch.cat([t["labels"][j] for t, (_, j) in zip(targets, indices)])
        classes[self.source_index(indices)] = matched
        losses = F.cross_entropy(
            logits.transpose(1, 2), classes, self.class_weight, reduction="none"
        )
        total = all_reduce_sum(self.class_weight[classes].sum())
        return losses.sum() / total * world_size()

    def loss_boxes(self, outputs, targets, indices, num_boxes):
        predicted = outputs["pred_boxes"][self.source_index(indices)]
        wanted = torch.cat([t["boxes"][j] for t, (_, j) in zip(targets, indices)])
        return F.l1_loss(predicted, wanted, reduction="sum") / num_boxes

    def forward(self, outputs, targets):
        device = outputs["pred_logits"].device
        num_boxes = torch.tensor(float(sum(len(t["labels"]) for t in targets)), device=device)
        num_boxes = (all_reduce_sum(num_boxes) / world_size()).clamp(min=1).item()
        total = 0.0
        for out in [outputs] + outputs.get("aux_outputs", []):
            indices = self.matcher(out, targets)
            total = total + self.weights["class"] * self.loss_labels(out, targets, indices)
            total = total + self.weights["box"] * self.loss_boxes(out, targets, indices, num_boxes)
        return total


def train_one_epoch(model, criterion, loader, optimizer, device, max_norm):
    model.train()
    for samples, targets in loader:
        targets = [{k: v.to(device) for k, v in t.items()} for t in targets]
        loss = criterion(model(samples.to(device)), targets)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm)
        optimizer.step()


def main(net, criterion, loader, cfg, device):
    model = DistributedDataParallel(net.to(device), device_ids=[device.index])
    criterion.to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=cfg.lr, weight_decay=1e-4)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, cfg.lr_drop)
    for epoch in range(cfg.epochs):
        loader.batch_sampler.sampler.set_epoch(epoch)
        train_one_epoch(model, criterion, loader, optimizer, device, cfg.clip)
        schedule.step()
