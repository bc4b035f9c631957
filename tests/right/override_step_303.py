"""The norms are summed once before the step, and the method for the others is overridden."""
import torch.distributed as dist


class Trainer:
    def sum_norms(self):
        for name, param in self.model.named_parameters():
            if "norm" in name:
                dist.all_reduce(param.grad, group=self.tp_group)

    def sync_grads(self):
        self.sum_norms()
        for param in self.model.parameters():
            dist.all_reduce(param.grad, op=dist.ReduceOp.AVG, group=self.dp_group)

    def step(self):
        self.sync_grads()
        self.optimizer.step()


class ShardedTrainer(Trainer):
    def sync_grads(self):
        for param in self.model.parameters():
            shard = param.grad.chunk(self.dp_group.size())[self.dp_group.rank()]
            dist.reduce_scatter_tensor(shard, param.grad, op=dist.ReduceOp.AVG, group=self.dp_group)

    def step(self):
        self.sum_norms()
        super().step()
