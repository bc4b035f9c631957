"""In-batch negatives loss with candidates gathered from all devices."""
# Source: huggingface/sentence-transformers pull request 3453 (confirmed from the thread)
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.distributed.nn.functional import all_gather


def all_gather_with_grad(tensor):
    """Concatenate the tensor of every rank along the first dimension."""
    if not (dist.is_available() and dist.is_initialized()):
        return tensor
    return torch.cat(all_gather(tensor.contiguous()), dim=0)


class MultipleNegativesRankingLoss(nn.Module):
    """Columns: anchor, positive, negative 1, ..., negative n."""

    def __init__(self, model, scale=20.0, gather_across_devices=False):
        super().__init__()
        self.model, self.scale = model, scale
        self.gather_across_devices = gather_across_devices
        self.cross_entropy_loss = nn.CrossEntropyLoss()

    def forward(self, sentence_features, labels=None):
        embeddings = [self.model(features)["sentence_embedding"] for features in sentence_features]
        return self.compute_loss_from_embeddings(embeddings)

    def compute_loss_from_embeddings(self, embeddings):
        anchors = F.normalize(embeddings[0], dim=-1)
        columns = [F.normalize(e, dim=-1) for e in embeddings[1:]]
        batch_size = anchors.size(0)
        offset = 0
        candidates = torch.cat(columns, dim=0)
        if self.gather_across_devices:
            candidates = all_gather_with_grad(candidates)  # BUG
            if dist.is_initialized():
                offset = dist.get_rank() * batch_size
        scores = anchors @ candidates.t() * self.scale
        # anchor i belongs to the positive i of this device
        range_labels = torch.arange(offset, offset + batch_size, device=scores.device)
        return self.cross_entropy_loss(scores, range_labels)
