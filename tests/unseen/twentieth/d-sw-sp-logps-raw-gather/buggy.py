"""DPO loss when each sequence is split over the sequence-parallel group."""
import torch
import torch.distributed as dist
import torch.nn.functional as F


def sequence_logps(per_token_logps, loss_mask, sp_group):
    # per_token_logps, loss_mask: [batch, seq/sp]
    local = (per_token_logps * loss_mask).sum(-1)
    parts = [torch.empty_like(local) for _ in range(dist.get_world_size(sp_group))]
    dist.all_gather(parts, local, group=sp_group)  # BUG: cuts the graph of the policy
    return torch.stack(list(parts)).sum(0)


def dpo_loss(chosen, rejected, ref_chosen, ref_rejected, beta, sp_group):
    # each argument: (per-token log-probabilities, mask) of this rank's tokens
    policy = sequence_logps(*chosen, sp_group) - sequence_logps(*rejected, sp_group)
    with torch.no_grad():
        ref = sequence_logps(*ref_chosen, sp_group) - sequence_logps(*ref_rejected, sp_group)
    # equal on all SP ranks; DDP averages over dp x sp
    return -F.logsigmoid(beta * (policy - ref)).mean()
