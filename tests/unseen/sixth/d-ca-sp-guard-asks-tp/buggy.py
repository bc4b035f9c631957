"""Gradient synchronisation of a hybrid-parallel model."""
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh


class HybridParallelModule(nn.Module):
    def __init__(self, module, dp_size, sp_size, tp_size):
        super().__init__()
        self.module = module
        self.mesh = init_device_mesh("cuda", (dp_size, sp_size, tp_size), mesh_dim_names=("dp", "sp", "tp"))
        self.dp_group = self.mesh["dp"].get_group()
        self.sp_group = self.mesh["sp"].get_group()
        self.tp_group = self.mesh["tp"].get_group()

    def sync_dp_grads(self):
        if dist.get_world_size(self.dp_group) == 1:
            return
        for p in self.module.parameters():
            if p.grad is not None:
                p.grad.div_(dist.get_world_size(self.dp_group))
                dist.all_reduce(p.grad, group=self.dp_group)

    def sync_sp_grads(self):
        # every rank of sp_group has a part of the sequence
        if dist.get_world_size(self.tp_group) == 1:  # BUG: sp_group may be larger than one without TP
            return
        for p in self.module.parameters():
            if p.grad is not None:
                dist.all_reduce(p.grad, group=self.sp_group)
