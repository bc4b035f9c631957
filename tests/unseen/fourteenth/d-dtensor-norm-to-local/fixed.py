# Reduces torchtitan's clip_grad_norm_: the squared norm of sharded gradients is a DTensor whose reduction is still
# pending, and each rank clips by the norm of its own shards.
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor


def global_grad_norm(grads):
    total = sum(g.pow(2).sum() for g in grads)
    if isinstance(total, DTensor):
        total = total.full_tensor()
    return total.sqrt()


@torch.no_grad()
def clip_grad_norm_(parameters, max_norm):
    parameters = [p for p in parameters if p.grad is not None]
    total_norm = global_grad_norm([p.grad for p in parameters])
    torch.nn.utils.clip_grads_with_norm_(parameters, max_norm, total_norm)
    return total_norm


def parallelize(model, world_size):
    mesh = init_device_mesh("cuda", (world_size,), mesh_dim_names=("dp_shard",))
    for block in model.layers:
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
    return model


class Trainer:
    def __init__(self, model, job_config):
        self.job_config = job_config
        self.model = parallelize(model, dist.get_world_size())
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=job_config.lr, fused=True)

    def train_step(self, inputs, labels):
        self.optimizer.zero_grad()
        pred = self.model(inputs)
        loss = torch.nn.functional.cross_entropy(pred.flatten(0, 1).float(), labels.flatten(0, 1))
        loss.backward()
        grad_norm = clip_grad_norm_(self.model.parameters(), self.job_config.max_norm)
        self.optimizer.step()
        return loss.detach(), grad_norm
