"""Local steps with a plain optimizer; every few steps the parameters, not the gradients, are averaged over all ranks."""

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, DistributedSampler


@torch.no_grad()
def average_parameters(model):
    size = dist.get_world_size()
    works = []
    for param in model.parameters():
        param.data.div_(size)
        works.append(dist.all_reduce(param.data, op=dist.ReduceOp.SUM, async_op=True))
    for work in works:
        work.wait()


@torch.no_grad()
def average_buffers(model):
    for buffer in model.buffers():
        if buffer.is_floating_point():
            dist.all_reduce(buffer, op=dist.ReduceOp.AVG)


class OuterMomentum:
    """The move of the mean since the last round is a gradient for a slow optimizer."""

    def __init__(self, model, lr=0.7, momentum=0.9):
        self.model = model
        self.anchor = [p.detach().clone() for p in model.parameters()]
        self.optimizer = torch.optim.SGD(self.anchor, lr=lr, momentum=momentum, nesterov=True)

    @torch.no_grad()
    def step(self):
        average_parameters(self.model)
        for anchor, param in zip(self.anchor, self.model.parameters()):
            anchor.grad = anchor - param
        self.optimizer.step()
        for anchor, param in zip(self.anchor, self.model.parameters()):
            param.copy_(anchor)


def train(dataset, epochs, every):
    dist.init_process_group("nccl")
    torch.cuda.set_device(dist.get_rank() % torch.cuda.device_count())
    model = nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 10)).cuda()
    for param in model.parameters():
        dist.broadcast(param.data, src=0)
    outer = OuterMomentum(model)
    inner = torch.optim.AdamW(model.parameters(), lr=1e-3)
    sampler = DistributedSampler(dataset)
    step = 0
    for epoch in range(epochs):
        sampler.set_epoch(epoch)
        for x, y in DataLoader(dataset, batch_size=64, sampler=sampler):
            inner.zero_grad()
            F.cross_entropy(model(x.cuda()), y.cuda()).backward()
            inner.step()
            step += 1
            if step % every == 0:
                outer.step()
    average_parameters(model)
    average_buffers(model)
    if dist.get_rank() == 0:
        torch.save(model.state_dict(), "model.pt")
