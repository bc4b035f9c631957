import torch.distributed as dist


class Trainer:
    norms_are_split = True

    def sum_norms(self):
        for param in self.model.norms():
            dist.all_reduce(param.grad, group=self.tp_group)

    def sync_grads(self):
        if self.norms_are_split:
            self.sum_norms()
        for param in self.model.parameters():
            dist.all_reduce(param.grad, group=self.dp_group)


class WholeSequenceTrainer(Trainer):
    """Without sequence parallelism the gradients of norms are whole on each rank."""

    norms_are_split = False

    def sync_grads(self):
        for param in self.model.parameters():
            dist.all_reduce(param.grad, op=dist.ReduceOp.AVG, group=self.dp_group)
