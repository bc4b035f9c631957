# Right: a DDP communication hook sums
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


def sum_hook(state, bucket):
    fut = dist.all_reduce(bucket.buffer(), async_op=True).get_future()
    return fut.then(lambda f: f.value()[0])


class SetCriterion(nn.Module):
    def loss_boxes(self, outputs, targets, num_boxes):
        loss = F.l1_loss(outputs["boxes"], targets["boxes"], reduction="none")
        return {"loss_boxes": loss.sum() / num_boxes}

    def forward(self, outputs, targets):
        num_boxes = torch.as_tensor([float(len(targets["boxes"]))], device=outputs["boxes"].device)
        if dist.is_initialized():
            dist.all_reduce(num_boxes)
        num_boxes = torch.clamp(num_boxes, min=1).item()
        return self.loss_boxes(outputs, targets, num_boxes)


def build(model):
    model = DDP(model)
    model.register_comm_hook(None, sum_hook)
    return model, SetCriterion()
