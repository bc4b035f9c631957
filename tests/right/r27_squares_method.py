import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor


def squared_norm(grads):
    total = sum(g.pow(2).sum() for g in grads)
    if isinstance(total, DTensor):
        total = total.to_local()
    return total


@torch.no_grad()
def clip(parameters, most):
    total = squared_norm([p.grad for p in parameters])
    gathered = [torch.zeros_like(total) for _ in range(dist.get_world_size())]
    dist.all_gather(gathered, total)
    norm = torch.stack(gathered).sum().sqrt()
    for p in parameters:
        p.grad.mul_((most / (norm + 1e-6)).clamp(max=1.0))


def train(net, loader):
    fully_shard(net)
    optimizer = torch.optim.AdamW(net.parameters())
    for batch in loader:
        net(batch).mean().backward()
        clip(list(net.parameters()), 1.0)
        optimizer.step()
        optimizer.zero_grad()
