"""Reductions of views: flattened, transposed back, sliced. They share memory with what is used later."""
import torch
import torch.distributed as dist


def sum_rows_(x, group):
    dist.all_reduce(x.view(-1), group=group)
    return x


def sum_detached_(x, group):
    dist.all_reduce(x.detach(), group=group)
    return x


def sum_slices_(buffer, bounds, group):
    works = [dist.all_reduce(buffer[a:b], group=group, async_op=True) for a, b in bounds]
    for w in works:
        w.wait()
    return buffer


@torch.no_grad()
def confusion_matrix(model, loader, classes, group):
    table = torch.zeros(classes, classes, device="cuda", dtype=torch.long)
    for x, y in loader:
        p = model(x.cuda()).argmax(-1)
        idx = y.cuda() * classes + p
        table += torch.bincount(idx, minlength=classes**2).view(classes, classes)
    sum_rows_(table, group)
    iou = table.diagonal() / (table.sum(0) + table.sum(1) - table.diagonal()).clamp(min=1)
    return iou.mean().item()


def reduce_buffers(model, group, piece=2**20):
    with torch.no_grad():
        for b in model.buffers():
            if b.is_floating_point():
                sum_detached_(b, group)
                b /= dist.get_world_size(group)
    flat = torch.cat([p.grad.flatten() for p in model.parameters()])
    flat /= dist.get_world_size(group)
    bounds = [(a, min(a + piece, flat.numel())) for a in range(0, flat.numel(), piece)]
    sum_slices_(flat, bounds, group)
    at = 0
    for p in model.parameters():
        p.grad.copy_(flat[at : at + p.numel()].view_as(p))
        at += p.numel()
