# Reduces sentence-transformers' MultipleNegativesRankingLoss with gather_across_devices: the candidates of all ranks
# are concatenated in rank order, and the labels count from zero on every rank.
import torch
import torch.distributed as dist
import torch.distributed.nn as dist_nn
import torch.nn.functional as F
from torch import Tensor, nn


def all_gather_with_grad(tensor: Tensor) -> Tensor:
    if dist.is_available() and dist.is_initialized():
        return torch.cat(dist_nn.all_gather(tensor), dim=0)
    return tensor


class MultipleNegativesRankingLoss(nn.Module):
    def __init__(self, model: nn.Module, scale: float = 20.0, gather_across_devices: bool = False) -> None:
        super().__init__()
        self.model = model
        self.scale = scale
        self.gather_across_devices = gather_across_devices

    def forward(self, sentence_features: list) -> Tensor:
        embeddings = [self.model(features)["sentence_embedding"] for features in sentence_features]
        anchors, candidates = embeddings[0], embeddings[1]
        batch_size = anchors.size(0)
        offset = 0
        if self.gather_across_devices:
            candidates = all_gather_with_grad(candidates)
            if dist.is_initialized():
                offset = dist.get_rank() * batch_size

        scores = F.normalize(anchors, dim=1) @ F.normalize(candidates, dim=1).T * self.scale
        labels = torch.arange(offset, offset + batch_size, device=scores.device)
        return F.cross_entropy(scores, labels)
