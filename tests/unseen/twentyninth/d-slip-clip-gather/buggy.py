"""CLIP and SimCLR objectives: every rank scores its own rows against the columns of all ranks."""
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F


def all_gather_batch(tensors):
    world_size = dist.get_world_size()
    output = []
    for tensor in tensors:
        parts = [torch.ones_like(tensor) for _ in range(world_size)]
        dist.all_gather(parts, tensor, async_op=False)
        output.append(torch.cat(parts, dim=0))
    return output


class GatherLayer(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        output = [torch.zeros_like(x) for _ in range(dist.get_world_size())]
        dist.all_gather(output, x)
        return tuple(output)

    @staticmethod
    def backward(ctx, *grads):
        all_gradients = torch.stack(grads)
        dist.all_reduce(all_gradients)
        return all_gradients[dist.get_rank()]


def all_gather_batch_with_grad(tensors):
    return [torch.cat(GatherLayer.apply(tensor), dim=0) for tensor in tensors]


class CLIPLoss(nn.Module):
    def forward(self, image_embed, text_embed, logit_scale):
        local_batch = image_embed.size(0)
        labels = local_batch * dist.get_rank() + torch.arange(local_batch, device=image_embed.device)
        image_embed = F.normalize(image_embed, dim=-1, p=2)
        text_embed = F.normalize(text_embed, dim=-1, p=2)

        image_embed_all, text_embed_all = all_gather_batch([image_embed, text_embed])  # BUG

        logits_per_image = logit_scale * image_embed @ text_embed_all.t()
        logits_per_text = logit_scale * text_embed @ image_embed_all.t()
        return (F.cross_entropy(logits_per_image, labels) + F.cross_entropy(logits_per_text, labels)) / 2


@torch.no_grad()
def retrieval_accuracy(image_embed, text_embed):
    image_all, text_all = all_gather_batch([image_embed, text_embed])
    pred = (image_all @ text_all.t()).argmax(dim=-1)
    return (pred == torch.arange(pred.numel(), device=pred.device)).float().mean()
