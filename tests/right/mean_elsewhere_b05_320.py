import os
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


class Momentum:
    def __init__(self, params, lr, beta=0.9):
        self.params = list(params)
        self.lr, self.beta = lr, beta
        self.bufs = [torch.zeros_like(p) for p in self.params]

    def zero_grad(self):
        for p in self.params:
            p.grad = None

    @torch.no_grad()
    def step(self, grad_scale=1.0):
        for p, buf in zip(self.params, self.bufs):
            buf.mul_(self.beta).add_(p.grad, alpha=grad_scale)
            p.add_(buf, alpha=-self.lr)


def main():
    dist.init_process_group("nccl")
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    world = dist.get_world_size()
    torch.manual_seed(61)
    ds = TensorDataset(torch.rand(6000, 1, 28, 28), torch.randint(0, 10, (6000,)))
    cnn = nn.Sequential(nn.Conv2d(1, 8, 3, 2), nn.ReLU(), nn.Conv2d(8, 16, 3, 2), nn.ReLU(), nn.Flatten(), nn.Linear(576, 10)).cuda()
    optim = Momentum(cnn.parameters(), lr=0.02)
    sampler = DistributedSampler(ds)
    loader = DataLoader(ds, batch_size=60, sampler=sampler, pin_memory=True)
    for epoch in range(4):
        sampler.set_epoch(epoch)
        for x, y in loader:
            optim.zero_grad()
            nn.functional.cross_entropy(cnn(x.cuda()), y.cuda()).backward()
            for p in cnn.parameters():
                dist.all_reduce(p.grad)
            optim.step(grad_scale=1 / world)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
