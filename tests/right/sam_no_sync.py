"""SAM under DDP: the ascent step is per rank (m-sharpness), the descent gradient is averaged."""
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


class SAM:
    def __init__(self, params, base, rho=0.05):
        self.params = list(params)
        self.base = base
        self.rho = rho
        self.eps = {}

    @torch.no_grad()
    def ascend(self):
        norm = torch.stack([p.grad.norm() for p in self.params if p.grad is not None]).norm()
        for p in self.params:
            if p.grad is None:
                continue
            e = p.grad * (self.rho / (norm + 1e-12))
            p.add_(e)
            self.eps[p] = e
        self.base.zero_grad()

    @torch.no_grad()
    def descend(self):
        for p, e in self.eps.items():
            p.sub_(e)
        self.eps.clear()
        self.base.step()
        self.base.zero_grad()


def train(net, loader, loss_fn):
    model = DDP(net.cuda())
    sam = SAM(model.parameters(), torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9))
    for x, y in loader:
        with model.no_sync():
            loss_fn(model(x), y).backward()
        sam.ascend()
        loss_fn(model(x), y).backward()
        sam.descend()
