"""Reduce the gradient of a fused weight by parts."""
import torch
import torch.distributed as dist


def reduce_kv_grads(model, num_q, tp_group):
    for p in model.parameters():
        if getattr(p, "fused_qkv", False):
            # the rows behind num_q belong to the replicated key and value heads
            kv = p.grad[num_q:].clone()
            dist.all_reduce(kv, group=tp_group)  # BUG: the sum stays in the clone
