# RLinf/RLinf, pull request 1558 - https://github.com/RLinf/RLinf/pull/1558 (read)
# The group for the gradient norm is looked up under the mesh dimension "ddp", which the usual 1-D FSDP mesh
# does not have: the group is None, the all-reduce is skipped and each rank clips with its shard's norm.
"""FSDP manager of an RL framework: device mesh, gradient norm and clipping."""
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor


def create_device_mesh(world_size, fsdp_size):
    if fsdp_size == world_size:
        return init_device_mesh("cuda", (world_size,), mesh_dim_names=("fsdp",))
    return init_device_mesh("cuda", (world_size // fsdp_size, fsdp_size), mesh_dim_names=("ddp", "fsdp"))


class FSDPModelManager:
    def __init__(self, model, fsdp_size, clip_grad):
        self.mesh = create_device_mesh(dist.get_world_size(), fsdp_size)
        self.clip_grad = clip_grad
        self._dp_group = self.mesh["fsdp"].get_group()
        self.model = fully_shard(model, mesh=self.mesh)

    @torch.no_grad()
    def get_grad_norm(self):
        total = torch.zeros((), device="cuda")
        for p in self.model.parameters():
            if p.grad is not None:
                grad = p.grad.to_local() if isinstance(p.grad, DTensor) else p.grad
                total += grad.float().pow(2).sum()
        if self._dp_group is not None:
            dist.all_reduce(total, group=self._dp_group)
        return total.sqrt()

    @torch.no_grad()
    def optimizer_step(self, optimizer):
        norm = self.get_grad_norm()
        coef = (self.clip_grad / (norm + 1e-6)).clamp(max=1.0)
        for p in self.model.parameters():
            if p.grad is not None:
                (p.grad.to_local() if isinstance(p.grad, DTensor) else p.grad).mul_(coef)
        optimizer.step()
        optimizer.zero_grad()
        return norm
