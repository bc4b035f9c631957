"""Vision encoder run data-parallel over the context-parallel ranks.

Source: https://github.com/NVIDIA-NeMo/Megatron-Bridge/pull/4784
Wrong: a rank without images enters the gather with a tensor that needs no gradient; autograd then
skips the gather's backward there, and the other ranks wait in its all_reduce for ever.
Repair: the empty embeddings require a gradient, so all ranks run the backward collective.
"""
import torch
import torch.distributed as dist
import torch.nn as nn


class AllGatherVisionEmbeddings(torch.autograd.Function):
    @staticmethod
    def forward(ctx, embeds, seqlens, cp_group):
        # seqlens: number of rows on each CP rank
        ctx.cp_group, ctx.seqlens = cp_group, seqlens
        rows = max(seqlens)
        padded = embeds.new_zeros(rows, embeds.size(1))
        padded[: embeds.size(0)] = embeds
        parts = [torch.empty_like(padded) for _ in seqlens]
        dist.all_gather(parts, padded, group=cp_group)
        return torch.cat([p[:n] for p, n in zip(parts, seqlens)])

    @staticmethod
    def backward(ctx, grad_output):
        grad = grad_output.contiguous().clone()
        dist.all_reduce(grad, group=ctx.cp_group)
        r = dist.get_rank(ctx.cp_group)
        start = sum(ctx.seqlens[:r])
        return grad[start:start + ctx.seqlens[r]], None, None


class Qwen3VLVision(nn.Module):
    def __init__(self, vision_model, hidden_size, cp_group):
        super().__init__()
        self.vision_model, self.hidden_size, self.cp_group = vision_model, hidden_size, cp_group

    def forward(self, local_pixels, seqlens, device):
        # each CP rank encodes some of the images; its text part needs rows of all of them
        if local_pixels is not None:
            embeds = self.vision_model(local_pixels)
        else:
            embeds = torch.zeros(0, self.hidden_size, device=device, requires_grad=True)
        return AllGatherVisionEmbeddings.apply(embeds, seqlens, self.cp_group)
