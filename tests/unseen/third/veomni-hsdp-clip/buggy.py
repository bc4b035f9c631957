"""Clip gradients of a model on a replicate x shard mesh."""
# Source: ByteDance-Seed/VeOmni issue 184 (confirmed from the thread)
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor


class ParallelState:
    def __init__(self, dp_replicate_size, dp_shard_size):
        self.mesh = init_device_mesh(
            "cuda", (dp_replicate_size, dp_shard_size), mesh_dim_names=("dp_replicate", "dp_shard")
        )
        self.dp_mesh = self.mesh["dp_replicate", "dp_shard"]
        self.fsdp_group = self.dp_mesh._flatten("dp").get_group()

    @property
    def dp_shard_group(self):
        return self.mesh.get_group("dp_shard")


def parallelize(model, state):
    for block in model.blocks:
        fully_shard(block, mesh=state.dp_mesh)
    return fully_shard(model, mesh=state.dp_mesh)


def _local_pth_sum(params, p):
    total = torch.zeros((), dtype=torch.float32, device="cuda")
    for param in params:
        if param.grad is None:
            continue
        grad = param.grad.to_local() if isinstance(param.grad, DTensor) else param.grad
        total += grad.detach().float().abs().pow(p).sum()
    return total


@torch.no_grad()
def clip_grad_norm(model, max_norm, state, norm_type=2.0):
    params = list(model.parameters())
    total = _local_pth_sum(params, norm_type)
    dist.all_reduce(total, op=dist.ReduceOp.SUM, group=state.fsdp_group)  # BUG
    total_norm = total.pow(1.0 / norm_type)
    torch.nn.utils.clip_grads_with_norm_(params, max_norm, total_norm)
    return total_norm


def train_step(model, micro_batches, state, optimizer, max_norm):
    for batch in micro_batches:
        (model(**batch).loss / len(micro_batches)).backward()
    norm = clip_grad_norm(model, max_norm, state)
    optimizer.step()
    optimizer.zero_grad()
    return norm
