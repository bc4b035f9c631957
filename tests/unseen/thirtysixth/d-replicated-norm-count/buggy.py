# thread: https://github.com/NVIDIA-NeMo/RL/pull/3788
"""Gradient clipping of a policy worker whose model is sharded over data- and tensor-parallel ranks."""
from typing import Iterable, Optional, Union

import torch
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module


def to_local_if_dtensor(tensor: Union[torch.Tensor, DTensor]) -> torch.Tensor:
    with torch.no_grad():
        return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def is_tp_sharded(param) -> bool:
    if not isinstance(param, DTensor) or "tp" not in (param.device_mesh.mesh_dim_names or ()):
        return False
    dim = param.device_mesh.mesh_dim_names.index("tp")
    return isinstance(param.placements[dim], Shard)


def get_grad_norm(
    parameters: Iterable[torch.nn.Parameter],
    dp_group: torch.distributed.ProcessGroup,
    tp_group: torch.distributed.ProcessGroup,
    norm_type: Union[int, float] = 2,
    dtype: torch.dtype = torch.float32,
) -> float:
    """Norm of the gradients over all data- and tensor-parallel shards."""
    params = [p for p in parameters if p.grad is not None]
    norm_type = float(norm_type)
    grads = [to_local_if_dtensor(p.grad.detach()).to(dtype) for p in params]
    total = torch.zeros((), dtype=dtype, device="cuda")
    for grad in grads:
        total += torch.norm(grad, norm_type) ** norm_type
    torch.distributed.all_reduce(total, op=torch.distributed.ReduceOp.SUM, group=dp_group)
    torch.distributed.all_reduce(total, op=torch.distributed.ReduceOp.SUM, group=tp_group)  # BUG
    return total.item() ** (1.0 / norm_type)


@torch.no_grad()
def clip_grad_by_total_norm_(parameters, max_grad_norm: float, total_norm: float):
    coeff = max_grad_norm / (total_norm + 1.0e-6)
    if coeff < 1.0:
        for p in parameters:
            if p.grad is not None:
                to_local_if_dtensor(p.grad).mul_(coeff)


def parallelize(model, dp_size, tp_size):
    mesh = init_device_mesh("cuda", (dp_size, tp_size), mesh_dim_names=("dp", "tp"))
    plan = {
        "self_attn.q_proj": ColwiseParallel(),
        "self_attn.k_proj": ColwiseParallel(),
        "self_attn.v_proj": ColwiseParallel(),
        "self_attn.o_proj": RowwiseParallel(output_layouts=Replicate()),
        "mlp.gate_proj": ColwiseParallel(),
        "mlp.up_proj": ColwiseParallel(),
        "mlp.down_proj": RowwiseParallel(output_layouts=Replicate()),
    }
    for layer in model.model.layers:
        parallelize_module(layer, mesh["tp"], plan)
        fully_shard(layer, mesh=mesh["dp"])
    fully_shard(model, mesh=mesh["dp"])
    return model, mesh


class PolicyWorker:
    def __init__(self, model, cfg):
        self.model, self.mesh = parallelize(model, cfg["dp_size"], cfg["tp_size"])
        self.max_grad_norm: Optional[float] = cfg.get("max_grad_norm")
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=cfg["lr"])

    def train(self, micro_batches, loss_fn):
        self.optimizer.zero_grad()
        losses = []
        for mb in micro_batches:
            logits = self.model(mb["input_ids"]).logits
            loss = loss_fn(logits, mb) / len(micro_batches)
            loss.backward()
            losses.append(loss.detach())
        grad_norm = get_grad_norm(
            self.model.parameters(), self.mesh["dp"].get_group(), self.mesh["tp"].get_group()
        )
        if self.max_grad_norm is not None:
            clip_grad_by_total_norm_(self.model.parameters(), self.max_grad_norm, grad_norm)
        self.optimizer.step()
        return {"loss": torch.stack(losses).sum(), "grad_norm": grad_norm}
