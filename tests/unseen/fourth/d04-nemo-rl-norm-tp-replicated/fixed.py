"""Gradient norm of a tensor-parallel policy (NeMo-RL style)."""
from typing import Union

import torch
from torch.distributed.tensor import DTensor


def to_local_if_dtensor(tensor):
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def clip_grad_by_total_norm_(parameters, max_grad_norm, total_norm):
    grads = [to_local_if_dtensor(p.grad.detach()) for p in parameters if p.grad is not None]
    clip_coeff = max_grad_norm / (total_norm + 1.0e-6)
    if clip_coeff < 1.0:
        for g in grads:
            g.mul_(clip_coeff)


@torch.no_grad()
def get_grad_norm(parameters, dp_group, tp_group, norm_type: Union[int, float] = 2, dtype=torch.float32):
    parameters = [p for p in parameters if p.grad is not None]
    tp_rank = torch.distributed.get_rank(tp_group)
    grads_for_norm = [
        to_local_if_dtensor(p.grad.detach()).to(dtype)
        for p in parameters
        if getattr(p, "tensor_model_parallel", False) or tp_rank == 0
    ]
    norm_type = float(norm_type)
    total_norm = torch.zeros((1,), dtype=torch.float, device="cuda")
    for grad in grads_for_norm:
        grad_norm = torch.linalg.vector_norm(grad, ord=norm_type, dtype=dtype)
        total_norm += torch.pow(grad_norm, norm_type)
    torch.distributed.all_reduce(total_norm, op=torch.distributed.ReduceOp.SUM, group=dp_group)
    torch.distributed.all_reduce(total_norm, op=torch.distributed.ReduceOp.SUM, group=tp_group)
    return total_norm.item() ** (1.0 / norm_type)


class DTensorPolicyWorker:
    def __init__(self, model, cfg, device_mesh):
        self.model, self.cfg = model, cfg
        self.dp_mesh, self.tp_mesh = device_mesh["dp"], device_mesh["tp"]
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=cfg["lr"])

    def train_step(self, batch, loss_fn):
        self.optimizer.zero_grad()
        loss = loss_fn(self.model(**batch), batch)
        loss.backward()
        grad_norm = get_grad_norm(
            self.model.parameters(), dp_group=self.dp_mesh.get_group(), tp_group=self.tp_mesh.get_group()
        )
        clip_grad_by_total_norm_(self.model.parameters(), self.cfg["max_grad_norm"], grad_norm)
        self.optimizer.step()
        return loss.detach(), grad_norm
