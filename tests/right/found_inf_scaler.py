"""Loss scaling by hand: ranks agree on overflow, gradients are unscaled after the reduction."""
import torch
import torch.distributed as dist


class Scaler:
    def __init__(self, scale=2.0**16, window=1000):
        self.value, self.window, self.good = scale, window, 0

    def update(self, overflow):
        if overflow:
            self.value, self.good = max(self.value / 2, 1.0), 0
        else:
            self.good += 1
            if self.good % self.window == 0:
                self.value *= 2


class FP16Optimizer:
    def __init__(self, model, inner, master, dp_group, mp_group):
        self.model, self.inner, self.master = model, inner, master
        self.dp_group, self.mp_group = dp_group, mp_group
        self.scaler = Scaler()

    def backward(self, loss):
        (loss.float() * self.scaler.value).backward()

    def reduce(self):
        for p in self.model.parameters():
            dist.all_reduce(p.grad, op=dist.ReduceOp.AVG, group=self.dp_group)

    def overflow(self):
        bad = torch.zeros((), device="cuda")
        for p in self.model.parameters():
            if not torch.isfinite(p.grad).all():
                bad.fill_(1)
        # gradients are equal over dp, parts differ over model parallel ranks
        dist.all_reduce(bad, op=dist.ReduceOp.MAX, group=self.mp_group)
        return bad.item() > 0

    def step(self):
        self.reduce()
        overflow = self.overflow()
        inv = 1.0 / self.scaler.value
        self.scaler.update(overflow)
        if not overflow:
            for m, p in zip(self.master, self.model.parameters()):
                m.grad = p.grad.float() * inv
            self.inner.step()
            for m, p in zip(self.master, self.model.parameters()):
                p.data.copy_(m.data)
        self.model.zero_grad(set_to_none=True)
        return overflow


def train(optimizer, model, loader):
    for x, y in loader:
        loss = torch.nn.functional.cross_entropy(model(x.half()), y)
        optimizer.backward(loss)
        optimizer.step()
