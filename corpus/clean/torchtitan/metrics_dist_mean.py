"""Functions that reduce a number over a mesh for the log, and a validator that uses them."""

import torch
import torch.distributed._functional_collectives as funcol
import torch.distributed.distributed_c10d as c10d
from torch.distributed.tensor import DTensor


def _dist_reduce(x, reduce_op, mesh, extra_pg=None):
    if isinstance(x, DTensor):
        # The functional collectives do not take DTensors.
        x = x.full_tensor()
    if extra_pg is not None:
        x = funcol.all_reduce(x, reduceOp=reduce_op, group=extra_pg)
    if mesh is None:
        return x.item()
    assert x.numel() == 1
    return funcol.all_reduce(x, reduceOp=reduce_op, group=mesh).item()


def dist_max(x, mesh=None, extra_pg=None):
    return _dist_reduce(x, reduce_op=c10d.ReduceOp.MAX.name, mesh=mesh, extra_pg=extra_pg)


def dist_sum(x, mesh=None, extra_pg=None):
    return _dist_reduce(x, reduce_op=c10d.ReduceOp.SUM.name, mesh=mesh, extra_pg=extra_pg)


def dist_mean(x, mesh=None, extra_pg=None):
    return _dist_reduce(x, reduce_op=c10d.ReduceOp.AVG.name, mesh=mesh, extra_pg=extra_pg)


class Validator:
    def __init__(self, loader, loss_fn, loss_mesh, batch_mesh):
        self.loader, self.loss_fn = loader, loss_fn
        self.loss_mesh, self.batch_mesh = loss_mesh, batch_mesh

    @torch.no_grad()
    def validate(self, model, steps):
        model.eval()
        losses = []
        for step, (inputs, labels) in enumerate(self.loader):
            if step >= steps:
                break
            labels = labels.cuda()
            local_tokens = (labels != -100).sum()
            global_tokens = dist_sum(local_tokens, self.batch_mesh)
            loss_sum = self.loss_fn(model(inputs["input"].cuda()), labels)
            losses.append(loss_sum / global_tokens)
        model.train()
        return dist_sum(torch.stack(losses).mean(), self.loss_mesh)


def train_step(model, batch, loss_fn, optimizer, mesh, should_log):
    loss = loss_fn(model(batch["input"]), batch["labels"])
    loss.backward()
    optimizer.step()
    if should_log:
        return dist_mean(loss.detach(), mesh), dist_max(loss.detach(), mesh)
    return None
