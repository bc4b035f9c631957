"""Contrastive loss with or without backpropagation through the gather.

Source: https://github.com/facebookresearch/multimodal/pull/361
"""
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.distributed.nn.functional import all_gather as all_gather_with_backprop


def gather_tensor(tensor, backprop_in_gather=True):
    """With backprop_in_gather False, only the tensor of the own rank carries gradients."""
    if not dist.is_initialized() or dist.get_world_size() == 1:
        return [tensor]
    if backprop_in_gather:
        return list(all_gather_with_backprop(tensor))
    gathered = [torch.zeros_like(tensor) for _ in range(dist.get_world_size())]
    dist.all_gather(gathered, tensor.contiguous())
    gathered[dist.get_rank()] = tensor
    return gathered


def contrastive_loss(image_embeddings, text_embeddings, logit_scale, backprop_in_gather=True):
    images = torch.cat(gather_tensor(image_embeddings, backprop_in_gather))
    texts = torch.cat(gather_tensor(text_embeddings, backprop_in_gather))
    n = image_embeddings.size(0)
    rank = dist.get_rank() if dist.is_initialized() else 0
    labels = torch.arange(n, device=images.device) + rank * n
    logits_image = logit_scale.exp() * image_embeddings @ texts.t()
    logits_text = logit_scale.exp() * text_embeddings @ images.t()
    return (F.cross_entropy(logits_image, labels) + F.cross_entropy(logits_text, labels)) / 2
