"""Loss metrics under tensor and context parallelism. pytorch/torchtitan, pull requests #3313 and #3159."""
import torch
import torch.distributed._functional_collectives as funcol
import torch.distributed.distributed_c10d as c10d
from torch.distributed.tensor import DTensor


def _dist_reduce(x, reduce_op, mesh):
    if isinstance(x, DTensor):
        x = x.full_tensor()
    assert x.numel() == 1
    return funcol.all_reduce(x, reduceOp=reduce_op, group=mesh).item()


def dist_max(x, mesh):
    return _dist_reduce(x, c10d.ReduceOp.MAX.name, mesh)


def dist_sum(x, mesh):
    return _dist_reduce(x, c10d.ReduceOp.SUM.name, mesh)


class Trainer:
    def __init__(self, model, optimizer, loss_fn, world_mesh):
        self.model, self.optimizer, self.loss_fn = model, optimizer, loss_fn
        self.loss_mesh = world_mesh["dp_cp"]

    def train_step(self, input_ids, labels, num_local_valid):
        global_valid = dist_sum(num_local_valid, self.loss_mesh)
        # with tp the prediction, and so the loss, is a DTensor on the tp mesh: Replicate()
        pred = self.model(input_ids)
        loss = self.loss_fn(pred, labels, reduction="sum") / global_valid
        loss.backward()  # FSDP sums: its gradient divide factor is 1
        self.optimizer.step()
        self.optimizer.zero_grad()
        # loss: this rank's share of the global mean
        loss = loss.detach()
        local_mean = loss * (global_valid / num_local_valid.item())
        return {
            "loss/global_avg": dist_sum(loss, self.loss_mesh),
            "loss/global_max": dist_max(local_mean, self.loss_mesh),
        }
