# logits[-1:, :] has one row (static slice)
import torch
import torch.distributed as dist


@torch.no_grad()
def next_logits(logits, group):
    """Decoding: one sequence, one position. logits: [1, vocab / tp]"""
    logits = logits[-1:, :]
    out = logits.new_empty(logits.shape[0], logits.shape[1] * dist.get_world_size(group))
    dist.all_gather_into_tensor(out, logits.contiguous(), group=group)
    return out
