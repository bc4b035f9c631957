# Right: FSDP2 is told not to divide
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.fsdp import fully_shard


class SetCriterion(nn.Module):
    def forward(self, outputs, targets):
        num_boxes = torch.as_tensor([float(len(targets["boxes"]))], device=outputs["boxes"].device)
        dist.all_reduce(num_boxes)
        num_boxes = torch.clamp(num_boxes, min=1).item()
        loss = F.l1_loss(outputs["boxes"], targets["boxes"], reduction="none")
        return loss.sum() / num_boxes


def build(model):
    for layer in model.layers:
        fully_shard(layer)
        layer.set_gradient_divide_factor(1.0)
    fully_shard(model)
    model.set_gradient_divide_factor(1.0)
    return model
