"""The loop is a generator: what follows its yield runs after the caller has averaged the gradients."""
import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, DistributedSampler


def steps(model, optimizer, loader):
    for x, y in loader:
        loss = torch.nn.functional.cross_entropy(model(x), y)
        loss.backward()
        yield loss.detach()
        optimizer.step()
        optimizer.zero_grad()


def average(model):
    for p in model.parameters():
        dist.all_reduce(p.grad, op=dist.ReduceOp.AVG)


def train(model, dataset):
    loader = DataLoader(dataset, 8, sampler=DistributedSampler(dataset))
    optimizer = torch.optim.AdamW(model.parameters())
    for i, loss in enumerate(steps(model, optimizer, loader)):
        average(model)
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        if i % 10 == 0:
            dist.all_reduce(loss, op=dist.ReduceOp.AVG)
            if dist.get_rank() == 0:
                print(i, loss.item(), norm.item())


def main(net, dataset):
    dist.init_process_group("nccl")
    net.cuda()
    for p in net.parameters():
        dist.broadcast(p.data, 0)
    train(net, dataset)
