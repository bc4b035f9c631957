import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor, Partial, Replicate


def train(model, opt, loader, mesh):
    """dp by all_reduce, cp through DTensor's Partial -> Replicate."""
    cp, r = mesh["cp"].size(), mesh["cp"].get_local_rank()
    for batch in loader:
        batch = {k: v.cuda().chunk(cp, dim=1)[r] for k, v in batch.items()}
        model(**batch).loss.backward()
        for p in model.parameters():
            dist.all_reduce(p.grad, op=dist.ReduceOp.AVG, group=mesh["dp"].get_group())
            d = DTensor.from_local(p.grad, mesh["cp"], [Partial("avg")])
            p.grad = d.redistribute(mesh["cp"], [Replicate()]).to_local()
        opt.step()
        opt.zero_grad()
