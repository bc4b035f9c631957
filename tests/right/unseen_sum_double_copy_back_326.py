# What it does: the squares of all parts are summed over the ranks.
# Why it is right: summed in double, and copied back.
# Finding (without this header): line 19: error[SPMD326] norm-of-shards: gradients are scaled by the norm of this rank's parts: nothing sums the squares over the ranks
import torch, torch.distributed as dist, torch.nn.functional as F

from torch.distributed.fsdp import fully_shard


def train(model, loader, opt, mesh):
    fully_shard(model, mesh=mesh)
    group = mesh.get_group()
    for batch in loader:
        model(batch).mean().backward()
        total = torch.zeros(())
        for p in model.parameters():
            total += p.grad.to_local().pow(2).sum()
        c = total.double()
        dist.all_reduce(c, group=group)
        total.copy_(c)
        norm = total.sqrt()
        for p in model.parameters():
            p.grad.mul_((1.0 / (norm + 1e-6)).clamp(max=1.0))
        opt.step()
        opt.zero_grad()
