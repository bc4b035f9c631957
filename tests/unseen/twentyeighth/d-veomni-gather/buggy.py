"""Input embeddings of a vision-language model under Ulysses sequence parallelism."""
import torch
import torch.distributed as dist
import torch.nn as nn


class _Gather(torch.autograd.Function):
    """Concatenate the equal slices of all ranks along ``dim``."""

    @staticmethod
    def forward(ctx, x, dim, group):
        ctx.dim, ctx.group = dim, group
        ctx.rank, ctx.size = dist.get_rank(group), dist.get_world_size(group)
        parts = [torch.empty_like(x) for _ in range(ctx.size)]
        dist.all_gather(parts, x.contiguous(), group=group)
        return torch.cat(parts, dim=dim)

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output.chunk(ctx.size, dim=ctx.dim)[ctx.rank].contiguous(), None, None  # BUG


def gather_outputs(x, dim, group):
    if dist.get_world_size(group) == 1:
        return x
    return _Gather.apply(x, dim, group)


def slice_input_tensor(x, dim, group):
    """The part of ``x`` that belongs to this rank."""
    size = dist.get_world_size(group)
    if size == 1:
        return x
    length = x.size(dim) // size
    return x.narrow(dim, dist.get_rank(group) * length, length).contiguous()


class VisionTower(nn.Module):
    """Encodes image patches; the patches of a batch are split over the group."""

    def __init__(self, patch_dim, hidden_size, depth):
        super().__init__()
        self.patch_embed = nn.Linear(patch_dim, hidden_size)
        self.blocks = nn.ModuleList(
            nn.Sequential(
                nn.LayerNorm(hidden_size),
                nn.Linear(hidden_size, 4 * hidden_size),
                nn.GELU(),
                nn.Linear(4 * hidden_size, hidden_size),
            )
            for _ in range(depth)
        )

    def forward(self, patches):
        x = self.patch_embed(patches)
        for block in self.blocks:
            x = x + block(x)
        return x


class MultimodalEmbedding(nn.Module):
    def __init__(self, config, sp_group):
        super().__init__()
        self.sp_group = sp_group
        self.image_token_id = config.image_token_id
        self.tokens = nn.Embedding(config.vocab_size, config.hidden_size)
        self.visual = VisionTower(config.patch_dim, config.hidden_size, config.vision_depth)

    def forward(self, input_ids, patches):
        """input_ids: [1, seq], the same on all ranks; patches: [n, patch_dim], likewise."""
        group = self.sp_group
        local_patches = slice_input_tensor(patches, 0, group)
        image_features = gather_outputs(self.visual(local_patches), 0, group)

        embeds = self.tokens(input_ids)
        image_mask = (input_ids == self.image_token_id).unsqueeze(-1).expand_as(embeds)
        embeds = embeds.masked_scatter(image_mask, image_features.to(embeds.dtype))
        return slice_input_tensor(embeds, 1, group)


class MultimodalModel(nn.Module):
    def __init__(self, config, language_model, sp_group):
        super().__init__()
        self.embedding = MultimodalEmbedding(config, sp_group)
        self.language_model = language_model
        self.sp_group = sp_group

    def forward(self, input_ids, patches, labels, position_ids):
        hidden = self.embedding(input_ids, patches)
        logits = self.language_model(inputs_embeds=hidden, position_ids=position_ids)
        labels = slice_input_tensor(labels, 1, self.sp_group)
        loss_sum = nn.functional.cross_entropy(
            logits.float().flatten(0, 1), labels.flatten(), ignore_index=-100, reduction="sum"
        )
        count = (labels != -100).sum()
        dist.all_reduce(count, group=self.sp_group)
        return loss_sum / count.clamp(min=1)
