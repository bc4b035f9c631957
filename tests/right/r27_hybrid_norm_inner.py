"""Norm of gradients with hybrid sharding."""
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard


class Trainer:
    def __init__(self, net, nodes, per_node, max_norm):
        self.mesh = init_device_mesh("cuda", (nodes, per_node), mesh_dim_names=("outer", "inner"))
        self.norm_group = self.mesh.get_group("inner")
        self.max_norm = max_norm
        for block in net.blocks:
            fully_shard(block, mesh=self.mesh)
        self.net = fully_shard(net, mesh=self.mesh)
        self.optimizer = torch.optim.AdamW(self.net.parameters())

    @torch.no_grad()
    def clip(self):
        squares = [p.grad.to_local().float().pow(2).sum() for p in self.net.parameters() if p.grad is not None]
        total = torch.stack(squares).sum()
        dist.all_reduce(total, group=self.norm_group)
        factor = (self.max_norm / (total.sqrt() + 1e-6)).clamp(max=1.0)
        for p in self.net.parameters():
            if p.grad is not None:
                p.grad.mul_(factor)

    def step(self, batch):
        self.net(batch).mean().backward()
        self.clip()
        self.optimizer.step()
        self.optimizer.zero_grad()
