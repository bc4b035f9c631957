"""Vision tower split by image over the context-parallel ranks."""
import torch
import torch.distributed as dist
from torch import nn


class AllGatherVisionEmbeddings(torch.autograd.Function):
    @staticmethod
    def forward(ctx, local_embeds, seqlens_on_cp_ranks, cp_group):
        ctx.seqlens, ctx.cp_group = seqlens_on_cp_ranks, cp_group
        outputs = [
            local_embeds.new_empty(n, local_embeds.shape[-1]) for n in seqlens_on_cp_ranks
        ]
        dist.all_gather(outputs, local_embeds.contiguous(), group=cp_group)
        return torch.cat(outputs, dim=0)

    @staticmethod
    def backward(ctx, grad_output):
        cp_rank = dist.get_rank(ctx.cp_group)
        grad_output = grad_output.clone(memory_format=torch.contiguous_format)
        dist.all_reduce(grad_output, group=ctx.cp_group)
        return grad_output.split(ctx.seqlens, dim=0)[cp_rank].contiguous(), None, None


def split_sequence_zigzag(x, cp_size, cp_rank):
    chunks = x.chunk(2 * cp_size, dim=0)
    return torch.cat([chunks[cp_rank], chunks[2 * cp_size - 1 - cp_rank]], dim=0)


class Qwen3VLModel(nn.Module):
    def __init__(self, vision_model, language_model, cp_group):
        super().__init__()
        self.vision_model, self.language_model = vision_model, language_model
        self.cp_group = cp_group

    def forward(self, input_ids, image_mask, local_pixels, seqlens_on_cp_ranks):
        vision = self.vision_model(local_pixels)
        vision = AllGatherVisionEmbeddings.apply(vision, seqlens_on_cp_ranks, self.cp_group)
        embeds = self.language_model.embedding(input_ids)
        embeds = embeds.masked_scatter(image_mask.unsqueeze(-1), vision)
        embeds = split_sequence_zigzag(embeds, self.cp_group.size(), dist.get_rank(self.cp_group))
        return self.language_model(decoder_input=embeds)
