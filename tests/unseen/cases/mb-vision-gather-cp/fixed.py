"""Vision embeddings computed in parts over the context-parallel group."""
import torch
import torch.distributed as dist


class AllGatherVisionEmbeddings(torch.autograd.Function):
    @staticmethod
    def forward(ctx, input, seqlens_on_cp_ranks, cp_group):
        ctx.cp_group, ctx.seqlens = cp_group, seqlens_on_cp_ranks
        outputs = [
            torch.empty((n, *input.shape[1:]), dtype=input.dtype, device=input.device)
            for n in seqlens_on_cp_ranks
        ]
        dist.all_gather(outputs, input, group=cp_group)
        return torch.cat(outputs, dim=0)

    @staticmethod
    def backward(ctx, grad_output):
        rank = dist.get_rank(ctx.cp_group)
        start = sum(ctx.seqlens[:rank])
        grad_output = grad_output.contiguous()
        dist.all_reduce(grad_output, group=ctx.cp_group)
        grad_output = grad_output[start:start + ctx.seqlens[rank]]
        return grad_output, None, None


def merge(text_embeds, vision_embeds, local_positions, seqlens, cp_group):
    # each context-parallel rank keeps the image tokens of its own sequence part
    vision = AllGatherVisionEmbeddings.apply(vision_embeds, seqlens, cp_group)
    return text_embeds + vision[local_positions]
