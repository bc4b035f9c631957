"""the square norm counts on the first rank, the others give zero."""
import torch
import torch.distributed as dist


def step(params, optimizer, group):
    for p in params:
        dist.all_reduce(p.grad, op=dist.ReduceOp.AVG, group=group)
    squares = torch.stack([p.grad.pow(2).sum() for p in params]).sum()
    if dist.get_rank(group) != 0:
        squares.zero_()
    dist.all_reduce(squares, group=group)
    factor = (1.0 / (squares.sqrt() + 1e-6)).clamp(max=1.0)
    for p in params:
        p.grad.mul_(factor)
    optimizer.step()
