import os
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.optim import Optimizer
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


class SignSGD(Optimizer):
    def __init__(self, params, lr=1e-3, weight_decay=0.0):
        super().__init__(params, dict(lr=lr, weight_decay=weight_decay))

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None:
                    continue
                p.mul_(1 - group["lr"] * group["weight_decay"])
                p.add_(torch.sign(p.grad), alpha=-group["lr"])


def main():
    dist.init_process_group("nccl")
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    torch.manual_seed(27)
    ds = TensorDataset(torch.randn(7200, 36), torch.randint(0, 12, (7200,)))
    model = nn.Sequential(nn.Linear(36, 72), nn.ReLU(), nn.Linear(72, 12)).cuda()
    opt = SignSGD(model.parameters(), lr=3e-4, weight_decay=0.01)
    sampler = DistributedSampler(ds)
    loader = DataLoader(ds, batch_size=72, sampler=sampler)
    for epoch in range(7):
        sampler.set_epoch(epoch)
        for x, y in loader:
            opt.zero_grad()
            nn.functional.cross_entropy(model(x.cuda()), y.cuda()).backward()
            for p in model.parameters():
                dist.all_reduce(p.grad)  # only the sign of the sum matters
            opt.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
