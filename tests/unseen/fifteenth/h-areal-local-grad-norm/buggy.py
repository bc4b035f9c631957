# Reduced from AReaL (areal-project/AReaL issue 312, read), FSDP engine.
# FSDP2 parameters are DTensors sharded over the data-parallel group, the norm is taken over
# the local shards.
# What happens: each rank clips by another coefficient, the result depends on the FSDP world size.
import torch
from torch.distributed.tensor import DTensor


def to_local_if_dtensor(tensor):
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


@torch.no_grad()
def get_grad_norm_fp32(parameters, data_parallel_group, norm_type=2.0):
    device = torch.cuda.current_device()
    total_norm = torch.zeros(1, dtype=torch.float32, device=device)
    for p in parameters:
        if p.grad is None:
            continue
        grad = to_local_if_dtensor(p.grad).to(torch.float32)
        total_norm += torch.linalg.vector_norm(grad, ord=norm_type) ** norm_type
    return total_norm.item() ** (1.0 / norm_type)  # BUG


@torch.no_grad()
def clip_grad_by_total_norm_fp32(parameters, max_norm, total_norm):
    clip_coeff = max_norm / (total_norm + 1.0e-6)
    if clip_coeff < 1.0:
        for p in parameters:
            if p.grad is not None:
                to_local_if_dtensor(p.grad).mul_(clip_coeff)


class FSDPEngine:
    def __init__(self, model, optimizer, dp_group, config):
        self.model, self.optimizer, self.dp_group, self.config = model, optimizer, dp_group, config

    def step_optimizer(self):
        params = list(self.model.parameters())
        grad_norm = get_grad_norm_fp32(params, self.dp_group)
        clip_grad_by_total_norm_fp32(params, self.config.gradient_clipping, grad_norm)
        self.optimizer.step()
        return grad_norm
