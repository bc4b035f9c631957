"""Norm of the gradients of a model that is sharded over dp and tp."""
# NVIDIA-NeMo/RL PR 3788: gradients that are replicated over tp are summed over tp as well, and counted tp times.
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor


def make_parameters(dim, ffn, dp, tp):
    mesh = init_device_mesh("cuda", (dp, tp), mesh_dim_names=("dp", "tp"))
    params = {
        "norm": distribute_tensor(torch.ones(dim), mesh, [Shard(0), Replicate()]),
        "w1": distribute_tensor(torch.empty(ffn, dim), mesh, [Shard(0), Shard(0)]),
        "w2": distribute_tensor(torch.empty(dim, ffn), mesh, [Shard(0), Shard(1)]),
    }
    return mesh, {k: torch.nn.Parameter(v) for k, v in params.items()}


def is_replicated(grad: DTensor, mesh_dim):
    index = grad.device_mesh.mesh_dim_names.index(mesh_dim)
    return isinstance(grad.placements[index], Replicate)


@torch.no_grad()
def get_grad_norm(parameters, dp_group, tp_group, norm_type=2.0):
    grads = [p.grad for p in parameters if p.grad is not None]
    total_norm = torch.tensor(0.0, device="cuda")
    for grad in grads:
        total_norm += torch.linalg.vector_norm(grad.to_local().float(), norm_type) ** norm_type
    dist.all_reduce(total_norm, op=dist.ReduceOp.SUM, group=dp_group)
    dist.all_reduce(total_norm, op=dist.ReduceOp.SUM, group=tp_group)  # BUG: counts replicated gradients tp times
    return total_norm.item() ** (1.0 / norm_type)


@torch.no_grad()
def clip_grad_by_total_norm_(parameters, max_grad_norm, total_norm):
    coeff = max_grad_norm / (total_norm + 1e-6)
    if coeff < 1.0:
        for p in parameters:
            p.grad.mul_(coeff)


def optimizer_step(params, optimizer, mesh, max_grad_norm):
    dp_group, tp_group = mesh.get_group("dp"), mesh.get_group("tp")
    norm = get_grad_norm(params.values(), dp_group, tp_group)
    clip_grad_by_total_norm_(params.values(), max_grad_norm, norm)
    optimizer.step()
    return norm
