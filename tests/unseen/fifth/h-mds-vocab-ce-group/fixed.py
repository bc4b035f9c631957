"""Cross entropy over logits that are split along the vocabulary."""
import torch
from megatron.core.parallel_state import (
    get_model_parallel_group,
    get_tensor_model_parallel_group,
    get_tensor_model_parallel_rank,
)


def vocab_parallel_nll(logits, target):
    # logits: [s, b, vocab/tp], target: global token ids
    group = get_tensor_model_parallel_group()
    peak = logits.detach().max(dim=-1)[0]
    torch.distributed.all_reduce(peak, op=torch.distributed.ReduceOp.MAX, group=group)
    logits = logits - peak.unsqueeze(-1)
    n = logits.size(-1)
    first = get_tensor_model_parallel_rank() * n
    outside = (target < first) | (target >= first + n)
    local = (target - first).masked_fill(outside, 0)
    picked = logits.gather(-1, local.unsqueeze(-1)).squeeze(-1).masked_fill(outside, 0.0)
    picked = picked.detach()
    torch.distributed.all_reduce(picked, group=group)
    denom = logits.detach().exp().sum(dim=-1)
    torch.distributed.all_reduce(denom, group=group)
    return denom.log() - picked
