"""Clip gradients in a trainer with pipeline stages over FSDP and TP."""
# Source: pytorch/torchtitan issue 596 and pull request 649 (confirmed from the threads)
import torch
import torch.distributed as dist
from torch.distributed.pipelining import Schedule1F1B
from torch.distributed.tensor import DTensor


@torch.no_grad()
def clip_grad_norm_(parameters, max_norm, pp_mesh=None, norm_type=2.0):
    parameters = list(parameters)
    grads = [p.grad for p in parameters if p.grad is not None]
    total_norm = torch.nn.utils.get_total_norm(grads, norm_type)
    if isinstance(total_norm, DTensor):
        total_norm = total_norm.full_tensor()
    if pp_mesh is not None:
        total_norm **= norm_type
        dist.all_reduce(total_norm, op=dist.ReduceOp.SUM, group=pp_mesh.get_group())
        total_norm **= 1.0 / norm_type
    torch.nn.utils.clip_grads_with_norm_(parameters, max_norm, total_norm)
    return total_norm


class Trainer:
    def __init__(self, job_config, model_parts, pp_stage, optimizers, world_mesh, loss_fn):
        self.job_config, self.model_parts, self.optimizers = job_config, model_parts, optimizers
        self.pp_mesh = world_mesh["pp"] if "pp" in world_mesh.mesh_dim_names else None
        self.has_first_stage, self.has_last_stage = pp_stage.is_first, pp_stage.is_last
        self.schedule = Schedule1F1B(pp_stage, job_config.n_microbatches, loss_fn=loss_fn)

    def train_step(self, input_ids, labels):
        for optimizer in self.optimizers:
            optimizer.zero_grad()
        target, losses = (labels, []) if self.has_last_stage else (None, None)
        if self.has_first_stage:
            self.schedule.step(input_ids, target=target, losses=losses)
        else:
            self.schedule.step(target=target, losses=losses)
        params = [p for m in self.model_parts for p in m.parameters()]
        grad_norm = clip_grad_norm_(params, self.job_config.max_norm, pp_mesh=self.pp_mesh)
        for optimizer in self.optimizers:
            optimizer.step()
        return grad_norm, losses
