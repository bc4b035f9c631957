"""The linear scaling rule: learning rate times world, gradients averaged by hand in fp16."""
import torch
import torch.distributed as dist


def warm(step, world, base, warmup):
    if step >= warmup:
        return base * world
    return base * (1 + (world - 1) * step / warmup)


class Compressed:
    @staticmethod
    def compress(g):
        return g.half(), g.dtype

    @staticmethod
    def decompress(g, dtype):
        return g.to(dtype)


def allreduce_mean(model):
    world = dist.get_world_size()
    handles = []
    for p in model.parameters():
        if p.grad is None:
            continue
        small, dtype = Compressed.compress(p.grad / world)
        handles.append((p, small, dtype, dist.all_reduce(small, async_op=True)))
    for p, small, dtype, work in handles:
        work.wait()
        p.grad.copy_(Compressed.decompress(small, dtype))


def train(model, loader, base=0.1, warmup=500):
    world = dist.get_world_size()
    optimizer = torch.optim.SGD(model.parameters(), lr=base, momentum=0.9)
    for step, (x, y) in enumerate(loader):
        for g in optimizer.param_groups:
            g["lr"] = warm(step, world, base, warmup)
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(x), y).backward()
        allreduce_mean(model)
        optimizer.step()
