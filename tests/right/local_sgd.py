"""Local SGD: ranks step on their own and average parameters every H steps."""
import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, DistributedSampler


@torch.no_grad()
def average_parameters(model):
    world = dist.get_world_size()
    for p in model.parameters():
        dist.all_reduce(p.data, op=dist.ReduceOp.SUM)
        p.data /= world


class LocalSGD:
    def __init__(self, model, optimizer, every, warmup):
        self.model, self.optimizer = model, optimizer
        self.every, self.warmup = every, warmup
        self.t = 0

    def step(self):
        self.optimizer.step()
        self.t += 1
        if self.t < self.warmup or self.t % self.every == 0:
            average_parameters(self.model)


def train(model, dataset, loss_fn, epochs=3):
    sampler = DistributedSampler(dataset, shuffle=True)
    loader = DataLoader(dataset, batch_size=32, sampler=sampler)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    local = LocalSGD(model, optimizer, every=16, warmup=100)
    for epoch in range(epochs):
        sampler.set_epoch(epoch)
        for x, y in loader:
            optimizer.zero_grad()
            loss_fn(model(x.cuda()), y.cuda()).backward()
            local.step()
    average_parameters(model)


def main(model, dataset):
    dist.init_process_group("nccl")
    model = model.cuda()
    for t in model.state_dict().values():
        dist.broadcast(t, src=0)
    train(model, dataset, torch.nn.CrossEntropyLoss())
