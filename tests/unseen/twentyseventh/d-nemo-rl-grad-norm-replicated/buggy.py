"""Total gradient norm and clipping for FSDP2 x tensor-parallel models."""
import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module


def parallelize(model, mesh):
    plan = {}
    for name in ("q_proj", "k_proj", "v_proj"):
        plan[f"self_attn.{name}"] = ColwiseParallel()
    plan["self_attn.o_proj"] = RowwiseParallel()
    plan.update({"mlp.gate_proj": ColwiseParallel(), "mlp.up_proj": ColwiseParallel()})
    plan["mlp.down_proj"] = RowwiseParallel()
    for layer in model.model.layers:
        parallelize_module(layer, mesh["tp"], plan)
        fully_shard(layer, mesh=mesh["dp_cp"])
    fully_shard(model, mesh=mesh["dp_cp"])
    return model


@torch.no_grad()
def clip_grad_by_total_norm(parameters, max_norm, mesh):
    params = [p for p in parameters if p.grad is not None]
    total = torch.zeros((), device="cuda")
    for p in params:
        grad = p.grad.to_local() if isinstance(p.grad, DTensor) else p.grad
        total += torch.linalg.vector_norm(grad.float()) ** 2
    dist.all_reduce(total, group=mesh.get_group("dp_cp"))
    dist.all_reduce(total, group=mesh.get_group("tp"))  # BUG: norms, embedding and head are replicated over TP
    norm = total.sqrt().item()
    for p in params:
        p.grad.mul_(min(1.0, max_norm / (norm + 1e-6)))
    return norm
