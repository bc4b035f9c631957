"""DPO loss when each sequence is split over the sequence-parallel group."""
import torch
import torch.nn.functional as F
from torch.distributed.nn.functional import all_gather


def sequence_logps(per_token_logps, loss_mask, sp_group):
    # per_token_logps, loss_mask: [batch, seq/sp]
    local = (per_token_logps * loss_mask).sum(-1)
    parts = all_gather(local, group=sp_group)
    return torch.stack(list(parts)).sum(0)


def dpo_loss(chosen, rejected, ref_chosen, ref_rejected, beta, sp_group):
    # each argument: (per-token log-probabilities, mask) of this rank's tokens
    policy = sequence_logps(*chosen, sp_group) - sequence_logps(*rejected, sp_group)
    with torch.no_grad():
        ref = sequence_logps(*ref_chosen, sp_group) - sequence_logps(*ref_rejected, sp_group)
    # equal on all SP ranks; DDP averages over dp x sp
    return -F.logsigmoid(beta * (policy - ref)).mean()
