# RIGHT: DTensors on the tp mesh, norm put together by full_tensor behind clip_grad_norm_ helper
import torch
from torch.distributed.tensor import DTensor


@torch.no_grad()
def clip(parameters, max_norm, tp_mesh=None):
    grads = [p.grad for p in parameters if p.grad is not None]
    norm = torch.nn.utils.get_total_norm(grads, 2.0)
    norm = norm.full_tensor() if isinstance(norm, DTensor) else norm
    coeff = torch.clamp(max_norm / (norm + 1e-6), max=1.0)
    for g in grads:
        g.mul_(coeff)
    return norm


def step(model, optimizer, mesh):
    clip(list(model.parameters()), 1.0, tp_mesh=mesh["tp"])
    optimizer.step()
