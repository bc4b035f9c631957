"""Average the loss of a step over the mesh of the data and context ranks.

Source: pytorch/torchtitan, pull request #3313 (issue #3280). With loss_parallel the loss is a
DTensor on the tensor-parallel mesh only. full_tensor() reduces over that mesh and the function
returns at once: the reduction over the mesh it was called with is dropped, so the value reported
is the one of a single data/context rank.
"""
import torch.distributed._functional_collectives as funcol
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel import loss_parallel


def _dist_reduce(x, reduce_op, mesh):
    if isinstance(x, DTensor):
        x = x.full_tensor()
    return float(funcol.all_reduce(x, reduceOp=reduce_op, group=mesh).item())


def dist_mean(x, mesh):
    return _dist_reduce(x, "avg", mesh)


def dist_max(x, mesh):
    return _dist_reduce(x, "max", mesh)


class Trainer:
    def __init__(self, model, optimizer, loss_fn, world_mesh, tp_enabled, logger):
        self.model, self.optimizer, self.loss_fn = model, optimizer, loss_fn
        self.loss_mesh = world_mesh["dp_cp"]  # does not contain the "tp" dimension
        self.tp_enabled, self.logger = tp_enabled, logger

    def train_step(self, step, input_ids, labels):
        self.optimizer.zero_grad()
        pred = self.model(input_ids)
        if self.tp_enabled:
            with loss_parallel():
                loss = self.loss_fn(pred, labels)
                loss.backward()
        else:
            loss = self.loss_fn(pred, labels)
            loss.backward()
        self.optimizer.step()
        loss = loss.detach()
        average, worst = dist_mean(loss, self.loss_mesh), dist_max(loss, self.loss_mesh)
        self.logger.log(step, average, worst)
