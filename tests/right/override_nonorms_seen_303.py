import torch.distributed as dist


class Trainer:
    def sum_norms(self):
        for param in self.model.norms():
            dist.all_reduce(param.grad, group=self.tp_group)

    def sync_grads(self):
        self.sum_norms()
        for param in self.model.parameters():
            dist.all_reduce(param.grad, group=self.dp_group)


class NormFreeTrainer(Trainer):
    def __init__(self, model, dp_group):
        if list(model.norms()):
            raise ValueError("this trainer is for models without norms")
        self.model, self.dp_group = model, dp_group

    def sync_grads(self):
        for param in self.model.parameters():
            dist.all_reduce(param.grad, group=self.dp_group)
