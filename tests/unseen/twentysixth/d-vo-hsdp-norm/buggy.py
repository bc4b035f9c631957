# VeOmni 3506c435 (#862)
"""Gradient clipping of an FSDP2 model whose gradients may live on the CPU."""
import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor

from veomni.distributed.parallel_state import get_parallel_state


def _local_pth_sum(params, p):
    res = torch.tensor(0.0, device="cuda")
    for param in params:
        g = param.grad
        g = g.to_local() if isinstance(g, DTensor) else g
        res += torch.linalg.vector_norm(g.detach().float(), p).pow(p).to(res.device)
    return res


@torch.no_grad()
def cpu_offload_fsdp2_clip_grad_norm(model, max_norm, norm_type=2.0):
    # fully_shard(model, mesh): mesh is (dp_shard_sp,), or (dp_replicate, dp_shard_sp) for HSDP;
    # ps.fsdp_group spans the whole mesh
    ps = get_parallel_state()
    params = [p for p in model.parameters() if p.grad is not None]
    total = _local_pth_sum(params, norm_type)
    group = ps.fsdp_group  # BUG: HSDP replicas hold the same shards and are counted again
    dist.all_reduce(total, op=dist.ReduceOp.SUM, group=group)
    total_norm = total.pow(1.0 / norm_type)
    torch.nn.utils.clip_grads_with_norm_(params, max_norm, total_norm)
    return total_norm
