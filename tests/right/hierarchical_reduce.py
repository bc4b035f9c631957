"""Two-step reduction: reduce-scatter in the node, all-reduce across nodes, all-gather in the node."""
import os

import torch
import torch.distributed as dist
from torch._utils import _flatten_dense_tensors, _unflatten_dense_tensors


def make_groups(local_size):
    world, rank = dist.get_world_size(), dist.get_rank()
    intra = inter = None
    for node in range(world // local_size):
        ranks = list(range(node * local_size, (node + 1) * local_size))
        g = dist.new_group(ranks)
        if rank in ranks:
            intra = g
    for i in range(local_size):
        ranks = list(range(i, world, local_size))
        g = dist.new_group(ranks)
        if rank in ranks:
            inter = g
    return intra, inter


def pad(flat, n):
    rest = (-flat.numel()) % n
    return torch.nn.functional.pad(flat, (0, rest)) if rest else flat


def hierarchical_mean(grads, intra, inter):
    n = dist.get_world_size(intra)
    flat = _flatten_dense_tensors(grads)
    size = flat.numel()
    flat = pad(flat, n)
    part = flat.new_empty(flat.numel() // n)
    dist.reduce_scatter_tensor(part, flat, group=intra)
    dist.all_reduce(part, group=inter)
    part.div_(dist.get_world_size())
    dist.all_gather_into_tensor(flat, part, group=intra)
    for g, new in zip(grads, _unflatten_dense_tensors(flat[:size], grads)):
        g.copy_(new)


def train(model, loader, optimizer, loss_fn, intra, inter):
    for x, y in loader:
        optimizer.zero_grad()
        loss_fn(model(x), y).backward()
        hierarchical_mean([p.grad for p in model.parameters() if p.grad is not None], intra, inter)
        optimizer.step()


if __name__ == "__main__":
    dist.init_process_group("nccl")
    from recipe import loader, loss_fn, net

    groups = make_groups(int(os.environ["LOCAL_WORLD_SIZE"]))
    train(net, loader, torch.optim.SGD(net.parameters(), 0.1), loss_fn, *groups)
