"""Vision tower run data-parallel on every rank, language model on dp x tp."""
import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard


class GatherImages(torch.autograd.Function):
    """Every tp rank of the language model gets the complete gradient of the features."""

    @staticmethod
    def forward(ctx, feats, group):
        ctx.group = group
        out = feats.new_empty(group.size() * feats.shape[0], *feats.shape[1:])
        dist.all_gather_into_tensor(out, feats.contiguous(), group=group)
        return out

    @staticmethod
    def backward(ctx, grad):
        return grad.chunk(ctx.group.size(), dim=0)[ctx.group.rank()], None


def parallelize(vision, llm, mesh):
    # llm is already tensor parallel over mesh["tp"]
    fully_shard(llm, mesh=mesh["dp"])
    fully_shard(vision, mesh=mesh["dp", "tp"]._flatten("dp_tp"))
    vision.set_gradient_divide_factor(float(mesh["dp"].size()))
    return vision, llm


def forward_backward(vision, llm, images, tokens, labels, mesh):
    # images, tokens: the samples of one dp rank, equal on its tp ranks
    tp = mesh["tp"].get_group()
    mine = images.chunk(tp.size(), dim=0)[tp.rank()]
    features = GatherImages.apply(vision(mine), tp)
    loss = llm(tokens, image_features=features, labels=labels).loss  # mean over the dp rank's tokens
    loss.backward()
    return loss.detach()
