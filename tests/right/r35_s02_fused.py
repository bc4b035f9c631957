import torch.distributed as dist


class Worker:
    def __init__(self, model, optimizer, loss_fn, tp_group, dp_group):
        self.model, self.optimizer, self.loss_fn = model, optimizer, loss_fn
        self.tp_group, self.dp_group = tp_group, dp_group

    def reduce_marked(self):
        for p in self.model.parameters():
            if getattr(p, "own_heads", False):
                dist.all_reduce(p.grad, group=self.tp_group)

    def reduce_fused(self):
        for p in self.model.parameters():
            grad = p.grad
            if getattr(p, "own_heads", False):
                dist.all_reduce(grad, group=self.tp_group)
            dist.all_reduce(grad, op=dist.ReduceOp.AVG, group=self.dp_group)

    def train(self, batches):
        for batch in batches:
            self.loss_fn(self.model(batch), batch).backward()
        self.reduce_marked()
        for p in self.model.parameters():
            dist.all_reduce(p.grad, op=dist.ReduceOp.AVG, group=self.dp_group)
        self.optimizer.step()

    def optim_step(self):
        self.reduce_fused()
        self.optimizer.step()
