"""What is divided is made up for elsewhere."""
import torch
import torch.distributed as dist


def reduce_gradients(model, dp_group):
    """Experts are whole on every rank and see the same tokens on all tensor-parallel ranks of a replica."""
    for name, p in model.named_parameters():
        if p.grad is None:
            continue
        if "experts" in name:
            group = dist.group.WORLD
        else:
            group = dp_group
        p.grad /= dist.get_world_size(group)
        dist.all_reduce(p.grad, group=group)


def step(model, batch, optimizer, dp_group):
    model(batch).mean().backward()
    reduce_gradients(model, dp_group)
    optimizer.step()
    optimizer.zero_grad()
