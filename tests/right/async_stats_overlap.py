"""Statistics are reduced asynchronously and read one step later."""
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


class LazyMean:
    """`push` starts the sum, `pop` of the next step waits for it."""

    def __init__(self):
        self.work, self.value = None, None

    def push(self, x):
        self.value = x.detach().clone()
        self.work = dist.all_reduce(self.value, async_op=True)

    def pop(self):
        if self.work is None:
            return None
        self.work.wait()
        self.work = None
        return self.value / dist.get_world_size()


class Meter:
    def __init__(self, *names):
        self.lazy = {n: LazyMean() for n in names}

    def log(self, step, **values):
        shown = {n: m.pop() for n, m in self.lazy.items()}
        for n, v in values.items():
            self.lazy[n].push(v)
        if dist.get_rank() == 0:
            text = " ".join(f"{n} {v.item():.3f}" for n, v in shown.items() if v is not None)
            print(step - 1, text)

    def close(self):
        for m in self.lazy.values():
            m.pop()


def train(net, loader):
    model = DistributedDataParallel(net)
    optimizer = torch.optim.AdamW(model.parameters())
    meter = Meter("loss", "accuracy")
    for step, (x, y) in enumerate(loader):
        logits = model(x)
        loss = torch.nn.functional.cross_entropy(logits, y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        meter.log(step, loss=loss, accuracy=(logits.argmax(-1) == y).float().mean())
    meter.close()
