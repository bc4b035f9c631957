# Source: facebookresearch/vissl commit 854421dd, vissl/losses/simclr_info_nce_loss.py
# The embeddings of the other ranks come from torch.distributed.all_gather, which cuts the
# graph: no gradient reaches an embedding for its role as negative on another rank (nor as
# key on its own).
# Repair: an autograd gather whose backward all-reduces and takes the own slice.
import torch
import torch.distributed as dist
from classy_vision.generic.distributed_util import (
    convert_to_distributed_tensor,
    convert_to_normal_tensor,
    is_distributed_training_run,
)
from torch import nn


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


def gather_from_all(tensor: torch.Tensor) -> torch.Tensor:
    if tensor.ndim == 0:
        tensor = tensor.unsqueeze(0)
    if is_distributed_training_run():
        tensor, orig_device = convert_to_distributed_tensor(tensor)
        gathered_tensors = GatherLayer.apply(tensor)
        gathered_tensors = [convert_to_normal_tensor(t, orig_device) for t in gathered_tensors]
    else:
        gathered_tensors = [tensor]
    return torch.cat(gathered_tensors, 0)


class SimclrInfoNCECriterion(nn.Module):
    def __init__(self, pos_mask, neg_mask, temperature: float):
        super().__init__()
        self.pos_mask, self.neg_mask, self.temperature = pos_mask, neg_mask, temperature

    def forward(self, embedding: torch.Tensor):
        assert embedding.ndim == 2
        embeddings_buffer = gather_from_all(embedding)
        # local anchors against the embeddings of all ranks
        similarity = torch.exp(torch.mm(embedding, embeddings_buffer.t()) / self.temperature)
        pos = torch.sum(similarity * self.pos_mask, 1)
        neg = torch.sum(similarity * self.neg_mask, 1)
        return -(torch.mean(torch.log(pos / (pos + neg))))
