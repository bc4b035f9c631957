import torch.distributed as dist


class SequenceParallelTrainer:
    def sum_norms(self):
        for param in self.model.norms():
            dist.all_reduce(param.grad, group=self.tp_group)

    def sync_grads(self):
        self.sum_norms()
        for param in self.model.parameters():
            dist.all_reduce(param.grad, group=self.dp_group)


class TensorParallelTrainer(SequenceParallelTrainer):
    """The whole sequence is on every rank, and norms have whole gradients: a sum would multiply them."""

    def sync_grads(self):
        for param in self.model.parameters():
            dist.all_reduce(param.grad, group=self.dp_group)
