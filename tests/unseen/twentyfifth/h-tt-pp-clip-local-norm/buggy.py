# torchtitan 046de5694 (PR #649, issue #596): each pipeline stage clips with the norm of its own
# parameters; the total norm is never reduced over the pipeline mesh.
from typing import Iterable, Optional

import torch
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor


@torch.no_grad()
def clip_grad_norm_(
    parameters: Iterable[torch.Tensor],
    max_norm: float,
    norm_type: float = 2.0,
    foreach: Optional[bool] = None,
    pp_mesh: Optional[DeviceMesh] = None,
) -> torch.Tensor:
    """Clip the gradient norm of the parameters of this rank's model parts.

    parameters are FSDP/TP DTensors of the pipeline stages that live on this rank.
    """
    parameters = list(parameters)
    grads = [p.grad for p in parameters if p.grad is not None]
    total_norm = torch.nn.utils.get_total_norm(grads, norm_type, foreach=foreach)
    if isinstance(total_norm, DTensor):
        total_norm = total_norm.full_tensor()
    torch.nn.utils.clip_grads_with_norm_(parameters, max_norm, total_norm, foreach)  # BUG
    return total_norm


def train_step(pp_schedule, model_parts, optimizers, inputs, targets, world_mesh, job_config):
    optimizers.zero_grad()
    losses = []
    pp_mesh = world_mesh["pp"]
    args = (inputs,) if pp_mesh.get_local_rank() == 0 else ()
    is_last = pp_mesh.get_local_rank() == pp_mesh.size() - 1
    pp_schedule.step(*args, target=targets if is_last else None, losses=losses if is_last else None)

    clip_grad_norm_(
        [p for m in model_parts for p in m.parameters()],
        job_config.training.max_norm,
        foreach=True,
        pp_mesh=pp_mesh,
    )
    optimizers.step()
