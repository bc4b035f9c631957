"""Gradients are averaged in a pre-hook of the optimizer's step."""
import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, DistributedSampler


def average_before_step(group=None):
    def hook(optimizer, args, kwargs):
        works = []
        for g in optimizer.param_groups:
            for p in g["params"]:
                if p.grad is not None:
                    works.append(dist.all_reduce(p.grad, op=dist.ReduceOp.AVG, group=group, async_op=True))
        for w in works:
            w.wait()

    return hook


def make_optimizer(model):
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    optimizer.register_step_pre_hook(average_before_step())
    return optimizer


def train(model, dataset):
    sampler = DistributedSampler(dataset)
    loader = DataLoader(dataset, 32, sampler=sampler)
    optimizer = make_optimizer(model)
    for epoch in range(5):
        sampler.set_epoch(epoch)
        for x, y in loader:
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(x), y).backward()
            optimizer.step()


def main(model, dataset):
    dist.init_process_group("gloo")
    for p in model.parameters():
        dist.broadcast(p.data, 0)
    train(model, dataset)
