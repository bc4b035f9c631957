"""tensor.split micro-batches, manual AVG all-reduce of gradients."""
import torch
import torch.distributed as dist
import torch.nn.functional as F


def reduce_gradients(model, group):
    for p in model.parameters():
        if p.grad is not None:
            dist.all_reduce(p.grad, op=dist.ReduceOp.AVG, group=group)


def fit_batch(model, opt, x, y, mask, micro, group):
    total_w = mask.sum()
    dist.all_reduce(total_w, group=group)
    norm = dist.get_world_size(group) / total_w
    for xi, yi, mi in zip(x.split(micro), y.split(micro), mask.split(micro)):
        per = F.mse_loss(model(xi), yi, reduction="none").mean(-1)
        loss = (per * mi).sum() * norm
        loss.backward()
    reduce_gradients(model, group)
    opt.step()
    opt.zero_grad()


def main(model, loader, group):
    for p in model.parameters():
        dist.broadcast(p.data, dist.get_global_rank(group, 0), group=group)
    opt = torch.optim.Adam(model.parameters())
    for x, y, mask in loader:
        fit_batch(model, opt, x, y, mask, 16, group)
