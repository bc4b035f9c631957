"""A trainer for models that fit on one device overrides the sums over the ranks that share a model."""
import torch.distributed as dist


class Trainer:
    def sync_grads(self):
        for param in self.model.norms():
            dist.all_reduce(param.grad, group=self.tp_group)
        for param in self.model.parameters():
            dist.all_reduce(param.grad, op=dist.ReduceOp.AVG, group=self.dp_group)


class DataParallelTrainer(Trainer):
    """For data parallelism alone: `tp_group` has one rank."""

    def sync_grads(self):
        for param in self.model.parameters():
            dist.all_reduce(param.grad, op=dist.ReduceOp.AVG, group=self.dp_group)
