"""Mean of the gradients of a model without FSDP, with Ulysses ranks."""
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh


class UlyssesEngine:
    def __init__(self, module, dp_size, sp_size):
        self.module = module
        self.device_mesh = init_device_mesh("cuda", (dp_size, sp_size), mesh_dim_names=("dp", "sp"))
        self.dp_group = self.device_mesh["dp"].get_group()
        self.dp_sp_group = self.device_mesh["dp", "sp"]._flatten("dp_sp").get_group()

    def average_gradients(self):
        # each rank of dp x sp has the mean loss of its own tokens
        for p in self.module.parameters():
            if p.grad is None:
                continue
            dist.all_reduce(p.grad, op=dist.ReduceOp.SUM, group=self.dp_sp_group)
            p.grad.div_(dist.get_world_size(self.dp_sp_group))
