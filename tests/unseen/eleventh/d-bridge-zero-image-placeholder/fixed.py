"""Vision tower split by images over context-parallel ranks.

Reduced from NVIDIA-NeMo/Megatron-Bridge 1d65d5756f (fix(model): correct Qwen3-VL
vision_dp_when_cp CP gradient and avoid 0-image-rank hang, #4784).
"""
import torch


class AllGatherVisionEmbeddings(torch.autograd.Function):
    @staticmethod
    def forward(ctx, input, seqlens, cp_group):
        outputs = [input.new_empty(n, input.shape[-1]) for n in seqlens]
        torch.distributed.all_gather(outputs, input, group=cp_group)
        ctx.rank, ctx.cp_group, ctx.seqlens = cp_group.rank(), cp_group, seqlens
        return torch.cat(outputs, dim=0)

    @staticmethod
    def backward(ctx, grad_output):
        # every rank used the embeddings for its own part of the sequence
        grad_output = grad_output.contiguous()
        torch.distributed.all_reduce(grad_output, group=ctx.cp_group)
        return grad_output.split(ctx.seqlens)[ctx.rank], None, None


class Qwen3VLModel(torch.nn.Module):
    def __init__(self, vision_model, config, cp_group):
        super().__init__()
        self.vision_model, self.config, self.cp_group = vision_model, config, cp_group

    def embed_images(self, vision_data, vision_grid_thw, seqlens_on_cp_ranks):
        # vision_data: the images of this rank, possibly none
        if vision_data.shape[0] > 0:
            vision_embeds = self.vision_model(vision_data, grid_thw=vision_grid_thw)
        else:
            vision_embeds = torch.zeros(
                (0, self.config.hidden_size), device=vision_data.device, dtype=self.config.params_dtype
            )
        if torch.is_grad_enabled() and not vision_embeds.requires_grad:
            vision_embeds.requires_grad_(True)
        return AllGatherVisionEmbeddings.apply(vision_embeds, seqlens_on_cp_ranks, self.cp_group)
