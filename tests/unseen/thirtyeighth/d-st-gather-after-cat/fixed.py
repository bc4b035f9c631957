"""In-batch negatives ranking loss across devices."""
# thread: huggingface/sentence-transformers#3453
from collections.abc import Iterable

import torch
import torch.distributed as dist
import torch.distributed.nn
from torch import Tensor, nn

from sentence_transformers import SentenceTransformer, util


def all_gather_with_grad(tensor: Tensor) -> Tensor:
    """Concatenation over ranks; the backward sums the gradients of all ranks."""
    if not (dist.is_available() and dist.is_initialized()):
        return tensor
    return torch.cat(torch.distributed.nn.functional.all_gather(tensor), dim=0)


class MultipleNegativesRankingLoss(nn.Module):
    def __init__(
        self,
        model: SentenceTransformer,
        scale: float = 20.0,
        similarity_fct=util.cos_sim,
        gather_across_devices: bool = False,
    ) -> None:
        super().__init__()
        self.model = model
        self.scale = scale
        self.similarity_fct = similarity_fct
        self.gather_across_devices = gather_across_devices
        self.cross_entropy_loss = nn.CrossEntropyLoss()

    def forward(self, sentence_features: Iterable[dict[str, Tensor]], labels: Tensor = None) -> Tensor:
        embeddings = [self.model(feature)["sentence_embedding"] for feature in sentence_features]
        return self.compute_loss_from_embeddings(embeddings)

    def compute_loss_from_embeddings(self, embeddings: list[Tensor]) -> Tensor:
        """embeddings: anchors, positives, then any number of hard-negative columns."""
        anchors = embeddings[0]
        candidates = embeddings[1:]
        batch_size = anchors.size(0)
        offset = 0

        if self.gather_across_devices:
            candidates = [all_gather_with_grad(column) for column in candidates]
            if dist.is_available() and dist.is_initialized():
                offset = dist.get_rank() * batch_size
        candidates = torch.cat(candidates, dim=0)

        # anchor i of this rank belongs to positive offset + i
        range_labels = torch.arange(offset, offset + batch_size, device=anchors.device)
        scores = self.similarity_fct(anchors, candidates) * self.scale
        return self.cross_entropy_loss(scores, range_labels)
