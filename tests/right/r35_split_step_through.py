import torch.distributed as dist


class Worker:
    def __init__(self, model, optimizer, loss_fn, tp_group):
        self.model, self.optimizer, self.loss_fn, self.tp_group = model, optimizer, loss_fn, tp_group

    def finish(self):
        for p in self.model.parameters():
            if getattr(p, "own_heads", False):
                dist.all_reduce(p.grad, group=self.tp_group)

    def train(self, batches):
        for batch in batches:
            self.loss_fn(self.model(batch), batch).backward()
        self.finish()
        self.optimizer.step()

    def last_round(self, batch):
        self.loss_fn(self.model(batch), batch).backward()
        self.finish()

    def optim_step(self):
        self.optimizer.step()
