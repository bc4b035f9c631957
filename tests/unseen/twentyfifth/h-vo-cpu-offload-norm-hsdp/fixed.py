# VeOmni 3506c435 (PR #862): under HSDP the clip of the CPU-offload path sums the squared norm over the whole
# FSDP mesh; replicas hold the same shards, so the norm is counted once per replica.
import torch
import torch.distributed as dist
from torch.distributed._tensor import DTensor

from ...utils.device import get_device_type
from ..parallel_state import get_parallel_state


def _fsdp_grad_norm_reduce_groups(ps):
    if not ps.dp_replicate_enabled:
        return [("fsdp", ps.fsdp_group)]
    if ps.dp_shard_sp_enabled:
        return [("fsdp_shard_sp", ps.dp_shard_sp_group)]
    return [("fsdp_shard", ps.dp_shard_group)] if ps.dp_shard_size > 1 else []


def _local_pth_sum(params, p):
    res = torch.tensor(0.0, device=torch.device(get_device_type()), dtype=torch.float32)
    for param in params:
        g = param.grad.to_local() if isinstance(param.grad, DTensor) else param.grad
        res = res + torch.linalg.vector_norm(g.detach().float(), p).pow(p).to(res.device)
    return res


def _fsdp2_reduce_group(params, norm_type, reduce_groups):
    """Compute local group statistic and reduce over provided groups."""
    val = _local_pth_sum(params, float(norm_type))
    for _, group in reduce_groups:
        if group is not None:
            dist.all_reduce(val, op=dist.ReduceOp.SUM, group=group)
    return val


@torch.no_grad()
def _cpu_offload_fsdp2_clip_grad_norm(model, max_norm: float, norm_type: float = 2.0, foreach: bool | None = None):
    """model: fully_shard-ed over the FSDP mesh, (dp_replicate, dp_shard[_sp]) when replicated too."""
    ps = get_parallel_state()
    params = [p for p in model.parameters() if p.grad is not None]
    total = _fsdp2_reduce_group(params, norm_type, reduce_groups=_fsdp_grad_norm_reduce_groups(ps))
    total_norm = total ** (1.0 / float(norm_type))
    torch.nn.utils.clip_grads_with_norm_(params, max_norm, total_norm, foreach=foreach)
    return total_norm
