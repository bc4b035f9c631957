"""Language-model head over a sequence-parallel trunk."""
import torch
import torch.nn.functional as F
from megatron.core.tensor_parallel import (
    gather_from_sequence_parallel_region,
    vocab_parallel_cross_entropy,
)


class LMHead(torch.nn.Module):
    def __init__(self, weight_shard, norm):
        super().__init__()
        self.weight = torch.nn.Parameter(weight_shard)  # [vocab/tp, hidden]
        self.weight.tensor_model_parallel = True
        self.norm = norm
        for p in norm.parameters():
            p.sequence_parallel = True

    def forward(self, hidden, labels, loss_mask):
        # hidden: [batch, seq/tp, hidden], labels and loss_mask: [batch, seq]
        hidden = self.norm(hidden)
        hidden = gather_from_sequence_parallel_region(hidden)  # BUG
        logits = F.linear(hidden, self.weight).flatten(0, 1)
        losses = vocab_parallel_cross_entropy(logits.float(), labels.flatten())
        mask = loss_mask.flatten().float()
        return (losses * mask).sum() / mask.sum().clamp(min=1)
