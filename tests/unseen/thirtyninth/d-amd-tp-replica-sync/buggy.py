"""Keep parameters that tensor parallelism leaves replicated equal on all ranks."""
import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor

SHARDED = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
PARTIAL_HEAD = ("q_norm", "k_norm")  # applied to this rank's heads


def tp_layout(name):
    parts = name.split(".")
    if any(p in SHARDED for p in parts):
        return "sharded"
    if any(p in PARTIAL_HEAD for p in parts):
        return "replicated_with_grad_allreduce"
    return "replicated"  # same input and same computation on every tensor-parallel rank


def broadcast_tp_replicas(model, tp_group):
    src = dist.get_process_group_ranks(tp_group)[0]
    for name, p in model.named_parameters():
        if tp_layout(name) != "sharded":
            dist.broadcast(p.data, src=src, group=tp_group)


@torch.no_grad()
def sync_tp_replica_grads(model, tp_group):
    world = dist.get_world_size(tp_group)
    if world == 1:
        return
    for name, p in model.named_parameters():
        layout = tp_layout(name)
        if layout == "sharded" or p.grad is None:
            continue
        grad = p.grad.to_local() if isinstance(p.grad, DTensor) else p.grad
        dist.all_reduce(grad, op=dist.ReduceOp.SUM, group=tp_group)  # BUG


def optimizer_step(model, optimizer, tp_group, max_norm, clip_grad_norm):
    sync_tp_replica_grads(model, tp_group)
    norm = clip_grad_norm(model, max_norm)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    return norm
