# RLinf/RLinf pull request 1558
# The gradient-norm group is the `ddp` mesh dimension, which a plain FSDP mesh does not have, so the norm stays
# that of the local shard; with hybrid sharding it sums over replicas instead of over the shards.
"""Gradient clipping of an FSDP2 model manager."""
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard


def create_device_mesh(world_size, fsdp_size):
    if fsdp_size in (-1, world_size):
        return init_device_mesh("cuda", (world_size,), mesh_dim_names=("fsdp",))
    return init_device_mesh(
        "cuda", (world_size // fsdp_size, fsdp_size), mesh_dim_names=("ddp", "fsdp")
    )


class FSDPModelManager:
    def __init__(self, model, cfg):
        self.cfg = cfg
        self._device_mesh = create_device_mesh(dist.get_world_size(), cfg.fsdp_size)
        self._dp_group = None
        if "ddp" in self._device_mesh.mesh_dim_names:  # BUG
            self._dp_group = self._device_mesh.get_group("ddp")
        for block in model.layers:
            fully_shard(block, mesh=self._device_mesh)
        self.model = fully_shard(model, mesh=self._device_mesh)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=cfg.lr)

    @torch.no_grad()
    def get_grad_norm(self):
        total = torch.zeros((), device="cuda")
        for p in self.model.parameters():
            if p.grad is not None:
                total += p.grad.to_local().float().pow(2).sum()
        if self._dp_group is not None:
            dist.all_reduce(total, group=self._dp_group)
        return total.sqrt()

    @torch.no_grad()
    def clip_grad_norm_(self):
        grad_norm = self.get_grad_norm()
        coef = (self.cfg.clip_grad / (grad_norm + 1e-6)).clamp(max=1.0)
        for p in self.model.parameters():
            if p.grad is not None:
                p.grad.to_local().mul_(coef)
        return grad_norm

    def optimizer_step(self):
        grad_norm = self.clip_grad_norm_()
        self.optimizer.step()
        self.optimizer.zero_grad()
        return grad_norm.item()
