import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F


def add_up(grad, group):
    grad = grad.contiguous()
    dist.all_reduce(grad, group=group)
    return grad


class GatherRows(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        ctx.group, ctx.n = group, x.size(0)
        rows = [torch.empty_like(x) for _ in range(dist.get_world_size(group))]
        dist.all_gather(rows, x.contiguous(), group=group)
        return torch.cat(rows)

    @staticmethod
    def backward(ctx, grad):
        whole = add_up(grad, ctx.group)
        return whole.narrow(0, dist.get_rank(ctx.group) * ctx.n, ctx.n), None


class ClipLoss(nn.Module):
    def __init__(self, group):
        super().__init__()
        self.group = group

    def forward(self, image_features, text_features, scale):
        all_text = GatherRows.apply(text_features, self.group)
        all_image = GatherRows.apply(image_features, self.group)
        labels = torch.arange(len(image_features), device=image_features.device) + dist.get_rank(self.group) * len(image_features)
        a = F.cross_entropy(scale * image_features @ all_text.T, labels)
        b = F.cross_entropy(scale * text_features @ all_image.T, labels)
        return (a + b) / 2
