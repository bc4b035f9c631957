# RIGHT: DTensor gradients over the tp mesh: get_total_norm reduces itself
import torch
from torch.distributed.tensor import DTensor


@torch.no_grad()
def clip(parameters, max_norm, tp_group=None):
    """tp_group: unused, the norm of DTensors is taken over their own mesh."""
    grads = [p.grad for p in parameters if p.grad is not None]
    norm = torch.nn.utils.get_total_norm(grads)
    if isinstance(norm, DTensor):
        norm = norm.full_tensor()
    torch.nn.utils.clip_grads_with_norm_(parameters, max_norm, norm)
    return norm


def step(model, optimizer, mesh):
    clip(list(model.parameters()), 1.0, tp_group=mesh["tp"].get_group())
    optimizer.step()
