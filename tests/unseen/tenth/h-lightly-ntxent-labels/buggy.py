"""NT-Xent loss, with the negatives of this process or of all processes.

lightly-ai/lightly 76b7dba5491f, lightly/loss/ntx_ent_loss.py
"""
import torch
from lightly.utils import dist
from torch import nn


class NTXentLoss(nn.Module):
    """
    Args:
        gather_distributed:
            If True then negatives from all processes are gathered before the
            loss calculation.
    """

    def __init__(self, temperature: float = 0.5, gather_distributed: bool = False):
        super().__init__()
        self.temperature = temperature
        self.gather_distributed = gather_distributed
        self.cross_entropy = nn.CrossEntropyLoss(reduction="mean")

    def forward(self, out0: torch.Tensor, out1: torch.Tensor):
        device = out0.device
        batch_size, _ = out0.shape

        out0 = nn.functional.normalize(out0, dim=1)
        out1 = nn.functional.normalize(out1, dim=1)

        if self.gather_distributed and dist.world_size() > 1:
            # gather hidden representations from other processes
            out0_large = torch.cat(dist.gather(out0), 0)
            out1_large = torch.cat(dist.gather(out1), 0)
            diag_mask = dist.eye_rank(batch_size, device=out0.device)
        else:
            # single process
            out0_large = out0
            out1_large = out1
            diag_mask = torch.eye(batch_size, device=out0.device, dtype=torch.bool)

        # here n = batch_size and m = batch_size * world_size
        # the resulting vectors have shape (n, m)
        logits_00 = torch.einsum("nc,mc->nm", out0, out0_large) / self.temperature
        logits_01 = torch.einsum("nc,mc->nm", out0, out1_large) / self.temperature
        logits_10 = torch.einsum("nc,mc->nm", out1, out0_large) / self.temperature
        logits_11 = torch.einsum("nc,mc->nm", out1, out1_large) / self.temperature

        # remove similarities between same views of the same image
        logits_00 = logits_00[~diag_mask].view(batch_size, -1)
        logits_11 = logits_11[~diag_mask].view(batch_size, -1)

        # the logits tensor in the end has shape (2*n, 2*m-1)
        logits_0100 = torch.cat([logits_01, logits_00], dim=1)
        logits_1011 = torch.cat([logits_10, logits_11], dim=1)
        logits = torch.cat([logits_0100, logits_1011], dim=0)

        labels = torch.arange(batch_size, device=device, dtype=torch.long)
        labels = labels + dist.rank() * batch_size  # BUG
        labels = labels.repeat(2)
        return self.cross_entropy(logits, labels)
