"""HSDP by hand: shards are summed in the shard group, then averaged over replicas; the norm needs the shard group only."""
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh


class Hsdp:
    def __init__(self, params, mesh):
        self.params = list(params)
        self.shard_group = mesh.get_group("shard")
        self.replica_group = mesh.get_group("replicate")
        self.n = mesh.size()
        self.rank = mesh.get_local_rank("shard")

    @torch.no_grad()
    def reduce(self):
        flat = torch.cat([p.grad.flatten() for p in self.params])
        parts = dist.get_world_size(self.shard_group)
        flat = torch.nn.functional.pad(flat, (0, -flat.numel() % parts))
        self.shard = torch.empty(flat.numel() // parts, device=flat.device)
        dist.reduce_scatter_tensor(self.shard, flat / self.n, group=self.shard_group)
        dist.all_reduce(self.shard, group=self.replica_group)

    @torch.no_grad()
    def clip(self, largest):
        square = self.shard.square().sum()
        # replicas hold the same shards by now
        dist.all_reduce(square, group=self.shard_group)
        self.shard.mul_((largest / (square.sqrt() + 1e-6)).clamp(max=1))

    @torch.no_grad()
    def step(self, lr):
        parts = dist.get_world_size(self.shard_group)
        whole = torch.empty(self.shard.numel() * parts, device=self.shard.device)
        dist.all_gather_into_tensor(whole, self.shard, group=self.shard_group)
        at = 0
        for p in self.params:
            p.sub_(whole[at : at + p.numel()].view_as(p), alpha=lr)
            at += p.numel()
            p.grad = None


def train(model, loader, loss_fn, replicas):
    shape = (replicas, dist.get_world_size() // replicas)
    mesh = init_device_mesh("cuda", shape, mesh_dim_names=("replicate", "shard"))
    hsdp = Hsdp(model.parameters(), mesh)
    for x, y in loader:
        loss_fn(model(x), y).backward()
        hsdp.reduce()
        hsdp.clip(1.0)
        hsdp.step(0.1)
