"""Gradient norm and clipping for DTensor policies (FSDP2 x TP)."""
import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor


def to_local_if_dtensor(t):
    return t.to_local() if isinstance(t, DTensor) else t


def is_tp_sharded(param):
    names = param.device_mesh.mesh_dim_names or ()
    return "tp" in names and param.placements[names.index("tp")].is_shard()


@torch.no_grad()
def clip_grad_by_total_norm_(parameters, max_grad_norm, total_norm):
    coeff = max_grad_norm / (total_norm + 1e-6)
    if coeff < 1.0:
        for p in parameters:
            if p.grad is not None:
                to_local_if_dtensor(p.grad).mul_(coeff)


@torch.no_grad()
def get_grad_norm(parameters, dp_cp_group, tp_group, norm_type=2.0):
    """All parameters are DTensors, sharded over dp_cp by fully_shard."""
    grads_for_norm = []
    for p in parameters:
        if p.grad is None:
            continue
        grads_for_norm.append(to_local_if_dtensor(p.grad))

    total = torch.zeros((), dtype=torch.float32, device="cuda")
    for g in grads_for_norm:
        total += torch.linalg.vector_norm(g, ord=norm_type, dtype=torch.float32) ** norm_type
    dist.all_reduce(total, op=dist.ReduceOp.SUM, group=dp_cp_group)
    dist.all_reduce(total, op=dist.ReduceOp.SUM, group=tp_group)  # BUG
    return total.item() ** (1.0 / norm_type)


class DTensorPolicyWorker:
    def __init__(self, model, optimizer, mesh, max_grad_norm):
        self.model, self.optimizer, self.max_grad_norm = model, optimizer, max_grad_norm
        self.dp_cp_group = mesh["dp_cp"].get_group()
        self.tp_group = mesh["tp"].get_group()

    def step(self):
        params = list(self.model.parameters())
        norm = get_grad_norm(params, self.dp_cp_group, self.tp_group)
        clip_grad_by_total_norm_(params, self.max_grad_norm, norm)
        self.optimizer.step()
        self.optimizer.zero_grad()
        return norm
