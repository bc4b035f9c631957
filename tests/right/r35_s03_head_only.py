import torch
import torch.distributed as dist


class Worker:
    """`train` is for the whole model; `tune_head` trains the head alone, that no rank has a part of."""

    def __init__(self, model, head, optimizer, loss_fn, tp_group):
        self.model, self.head, self.optimizer, self.loss_fn = model, head, optimizer, loss_fn
        self.tp_group = tp_group

    def finalize_grads(self):
        for p in self.model.parameters():
            if getattr(p, "sequence_parallel", False):
                dist.all_reduce(p.grad, group=self.tp_group)

    def train(self, batches):
        for batch in batches:
            self.loss_fn(self.head(self.model(batch)), batch).backward()
        self.finalize_grads()
        self.optimizer.step()
        self.optimizer.zero_grad()

    def tune_head(self, batch):
        with torch.no_grad():
            hidden = self.model(batch)
        self.loss_fn(self.head(hidden), batch).backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
