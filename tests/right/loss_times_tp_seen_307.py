import torch.distributed as dist


class Trainer:
    def __init__(self, model, tp_group, optimizer):
        self.model, self.tp_group, self.optimizer = model, tp_group, optimizer

    def reduce_norms(self):
        size = self.tp_group.size()
        for param in self.model.parameters():
            if getattr(param, "sequence_parallel", False):
                param.grad *= size
                dist.all_reduce(param.grad, op=dist.ReduceOp.AVG, group=self.tp_group)
