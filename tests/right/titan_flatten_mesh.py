"""torchtitan-like: cp is part of the mesh over which FSDP shards and over which the loss counts."""
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.experimental import context_parallel


def build_mesh(dp, cp):
    mesh = init_device_mesh("cuda", (dp, cp), mesh_dim_names=("dp", "cp"))
    mesh["dp", "cp"]._flatten("dp_cp")
    return mesh


class Trainer:
    def __init__(self, model, mesh):
        self.mesh = mesh
        self.loss_mesh = mesh["dp_cp"]
        for layer in model.layers:
            fully_shard(layer, mesh=self.loss_mesh)
        fully_shard(model, mesh=self.loss_mesh)
        self.model = model
        self.freqs = model.freqs_cis
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)

    def step(self, tokens, labels):
        with context_parallel(
            self.mesh["cp"],
            buffers=[tokens, labels, self.freqs],
            buffer_seq_dims=[1, 1, 0],
            no_restore_buffers={tokens, labels},
        ):
            logits = self.model(tokens)
            n = (labels != -100).sum()
            dist.all_reduce(n, group=self.loss_mesh.get_group())
            nll = F.cross_entropy(logits.flatten(0, 1).float(), labels.flatten(), reduction="sum", ignore_index=-100)
            loss = nll * self.loss_mesh.size() / n
            loss.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad()
        shown = loss.detach().clone()
        dist.all_reduce(shown, op=dist.ReduceOp.AVG, group=self.loss_mesh.get_group())
        return shown.item()
