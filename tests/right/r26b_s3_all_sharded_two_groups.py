# RIGHT: shard_all makes each parameter Shard(0) over tp: every square is counted once
import torch
import torch.distributed as dist
from torch.distributed.tensor import Shard, distribute_tensor


def shard_all(model, mesh):
    for m in model.modules():
        for n, p in list(m.named_parameters(recurse=False)):
            m.register_parameter(n, torch.nn.Parameter(distribute_tensor(p, mesh["tp"], [Shard(0)])))


@torch.no_grad()
def grad_norm(parameters, tp_group):
    total = torch.zeros(1, device="cuda")
    for g in [p.grad.to_local() for p in parameters if p.grad is not None]:
        total += torch.linalg.vector_norm(g) ** 2
    dist.all_reduce(total, group=tp_group)
    return total.sqrt()


def step(model, optimizer, tp_group):
    norm = grad_norm(list(model.parameters()), tp_group)
    optimizer.step()
    return norm
