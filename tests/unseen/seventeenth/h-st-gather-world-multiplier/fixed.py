# Source: huggingface/sentence-transformers commit 8c4331ec,
# multi_vector_encoder/losses/multiple_negatives_ranking.py
# The documents are gathered with gradients (the backward sums over the ranks) and DDP averages:
# that is the gradient of the mean loss. Multiplying the loss by the world size on top of it makes
# all gradients world_size times too large.
# Repair: drop the factor.
from __future__ import annotations

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel


def get_rank() -> int:
    return dist.get_rank() if dist.is_initialized() else 0


def get_world_size() -> int:
    return dist.get_world_size() if dist.is_initialized() else 1


def all_gather_with_grad(tensor: Tensor) -> Tensor:
    if not dist.is_initialized():
        return tensor
    return torch.cat(torch.distributed.nn.all_gather(tensor), dim=0)


class MultiVectorMultipleNegativesRankingLoss(nn.Module):
    def __init__(self, model: nn.Module, score_metric, scale: float = 1.0, gather_across_devices: bool = False):
        super().__init__()
        self.model, self.score_metric, self.scale = model, score_metric, scale
        self.gather_across_devices = gather_across_devices

    def forward(self, queries: dict[str, Tensor], documents: dict[str, Tensor]) -> Tensor:
        query_embeddings = self.model(queries)
        doc_embeddings = self.model(documents)
        batch_size = query_embeddings.size(0)

        if self.gather_across_devices:
            # the queries of this rank against the documents of all ranks
            doc_embeddings = all_gather_with_grad(doc_embeddings)
        scores = self.score_metric(query_embeddings, doc_embeddings)

        labels = torch.arange(batch_size, device=query_embeddings.device)
        if self.gather_across_devices:
            labels = labels + get_rank() * batch_size
        return F.cross_entropy(scores * self.scale, labels)


def train_step(loss_module: DistributedDataParallel, queries, documents, optimizer):
    # the trainer wraps the loss, which holds the model
    loss_module(queries, documents).backward()
    optimizer.step()
    optimizer.zero_grad()
