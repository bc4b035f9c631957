# CLIP-style contrastive loss over all TPU replicas.
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch_xla.core.xla_model as xm


class AllGather(torch.autograd.Function):
    @staticmethod
    def forward(ctx, value, dim):
        ctx.dim = dim
        ctx.ordinal = xm.get_ordinal()
        ctx.world_size = xm.xrt_world_size()
        return xm.all_gather(value, dim=dim)

    @staticmethod
    def backward(ctx, grad_output):
        grad = xm.reduce_scatter(
            xm.REDUCE_SUM, grad_output, scale=1.0, scatter_dim=ctx.dim, shard_count=ctx.world_size
        )
        return grad, None


class ClipLoss(nn.Module):
    def __init__(self):
        super().__init__()
        self.logit_scale = nn.Parameter(torch.tensor(2.6592))

    def forward(self, image, text):
        image, text = F.normalize(image, dim=-1), F.normalize(text, dim=-1)
        all_image, all_text = AllGather.apply(image, 0), AllGather.apply(text, 0)
        # every replica scores only its own rows
        scale = self.logit_scale.exp()
        labels = torch.arange(image.size(0), device=image.device) + xm.get_ordinal() * image.size(0)
        loss_i = F.cross_entropy(scale * image @ all_text.t(), labels)
        loss_t = F.cross_entropy(scale * text @ all_image.t(), labels)
        return (loss_i + loss_t) / 2


def train_step(encoder, criterion, batch, optimizer):
    optimizer.zero_grad()
    loss = criterion(*encoder(batch))
    loss.backward()
    xm.optimizer_step(optimizer)
    return loss
