"""The number of ranks that have a batch is counted by a sum of ones; ranks that ran out bring zeros."""
import torch
import torch.distributed as dist


def uneven(loader):
    it = iter(loader)
    while True:
        batch = next(it, None)
        active = torch.tensor(float(batch is not None), device="cuda")
        dist.all_reduce(active)
        if active == 0:
            return
        yield batch, active


def train(model, loader, optimizer, loss_fn):
    for batch, active in uneven(loader):
        optimizer.zero_grad()
        if batch is not None:
            x, y = batch
            loss_fn(model(x), y).backward()
        for p in model.parameters():
            if p.grad is None:
                p.grad = torch.zeros_like(p)
            dist.all_reduce(p.grad)
            p.grad.div_(active)
        optimizer.step()


def main(net, loader):
    dist.init_process_group("nccl")
    for p in net.parameters():
        dist.broadcast(p.data, 0)
    train(net.cuda(), loader, torch.optim.AdamW(net.parameters()), torch.nn.CrossEntropyLoss())
