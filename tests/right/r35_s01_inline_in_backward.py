import torch.distributed as dist


class Worker:
    def __init__(self, model, optimizer, loss_fn, tp_group, dp_group):
        self.model, self.optimizer, self.loss_fn = model, optimizer, loss_fn
        self.tp_group, self.dp_group = tp_group, dp_group

    def reduce_over_replicas(self):
        for p in self.model.parameters():
            dist.all_reduce(p.grad, op=dist.ReduceOp.AVG, group=self.dp_group)

    def finish(self):
        for p in self.model.parameters():
            if getattr(p, "own_heads", False):
                dist.all_reduce(p.grad, group=self.tp_group)
        self.reduce_over_replicas()

    def train(self, batches):
        for batch in batches:
            self.loss_fn(self.model(batch), batch).backward()
        self.finish()
        self.optimizer.step()

    def forward_backward(self, batch):
        """For the driver: one batch, whose gradients are complete over `tp` afterwards."""
        self.loss_fn(self.model(batch), batch).backward()
        for p in self.model.parameters():
            if getattr(p, "own_heads", False):
                dist.all_reduce(p.grad, group=self.tp_group)

    def optim_step(self):
        self.reduce_over_replicas()
        self.optimizer.step()
