"""FSDP2 actor with context parallelism."""
import torch
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard


class Actor:
    def __init__(self, model, dp_size, cp_size, optimizer_cls):
        mesh = init_device_mesh("cuda", (dp_size, cp_size), mesh_dim_names=("dp", "cp"))
        self.cp_mesh = mesh["cp"]
        mesh[("dp", "cp")]._flatten("dp_cp")
        for layer in model.layers:
            fully_shard(layer, mesh=mesh["dp_cp"])
        self.model = fully_shard(model, mesh=mesh["dp_cp"])
        self.optimizer = optimizer_cls(self.model.parameters())

    def train_step(self, batch, loss_fn):
        rank, size = self.cp_mesh.get_local_rank(), self.cp_mesh.size()
        tokens = batch["tokens"].chunk(size, dim=1)[rank]
        labels = batch["labels"].chunk(size, dim=1)[rank]
        loss = loss_fn(self.model(tokens), labels)
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
