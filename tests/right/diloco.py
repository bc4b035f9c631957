"""DiLoCo: inner AdamW steps on each rank, outer Nesterov on the averaged pseudo-gradient."""
import torch
import torch.distributed as dist
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler


class Outer:
    def __init__(self, model, lr=0.7, momentum=0.9):
        self.model = model
        self.anchor = [p.detach().clone() for p in model.parameters()]
        self.sgd = torch.optim.SGD(self.anchor, lr=lr, momentum=momentum, nesterov=True)

    @torch.no_grad()
    def step(self):
        for a, p in zip(self.anchor, self.model.parameters()):
            a.grad = a - p.data
            dist.all_reduce(a.grad, op=dist.ReduceOp.AVG)
        self.sgd.step()
        self.sgd.zero_grad()
        for a, p in zip(self.anchor, self.model.parameters()):
            p.data.copy_(a)


def inner_steps(model, batches, optimizer, n):
    total = 0.0
    for _ in range(n):
        x, y = next(batches)
        loss = torch.nn.functional.cross_entropy(model(x.cuda()), y.cuda())
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        total += loss.item()
    return total / n


def endless(loader, sampler):
    epoch = 0
    while True:
        sampler.set_epoch(epoch)
        yield from loader
        epoch += 1


def main(model, dataset, rounds=100, inner=500):
    dist.init_process_group("nccl")
    model.cuda()
    for p in model.parameters():
        dist.broadcast(p.data, 0)
    sampler = DistributedSampler(dataset)
    batches = endless(DataLoader(dataset, 16, sampler=sampler), sampler)
    optimizer = torch.optim.AdamW(model.parameters(), lr=4e-4)
    outer = Outer(model)
    for r in range(rounds):
        shown = torch.tensor(inner_steps(model, batches, optimizer, inner), device="cuda")
        outer.step()
        dist.all_reduce(shown)
        if dist.get_rank() == 0:
            print(r, shown.item() / dist.get_world_size())
