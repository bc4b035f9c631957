"""Multiple-instance learning: instances of a bag are spread over ranks, their scores are added up, one loss per bag."""
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F


class SumInstances(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        x = x.clone()
        dist.all_reduce(x)
        return x

    @staticmethod
    def backward(ctx, grad):
        # every rank goes on with the same sum and has the same gradient of it
        return grad


class Bag(nn.Module):
    def __init__(self, net):
        super().__init__()
        self.net = net

    def forward(self, instances):
        # instances: [bags, own instances, ...]
        scores = self.net(instances.flatten(0, 1)).view(instances.shape[0], -1)
        return SumInstances.apply(scores.sum(1))


def train(model, loader, optimizer):
    for instances, y in loader:
        logit = model(instances)
        loss = F.binary_cross_entropy_with_logits(logit, y.float())
        optimizer.zero_grad()
        loss.backward()
        for p in model.parameters():
            # each rank has the part of its instances
            dist.all_reduce(p.grad)
        optimizer.step()
        if dist.get_rank() == 0:
            print(loss.item())


if __name__ == "__main__":
    from recipe import loader, net

    dist.init_process_group("nccl")
    model = Bag(net.cuda())
    for p in model.parameters():
        dist.broadcast(p.data, 0)
    train(model, loader, torch.optim.AdamW(model.parameters()))
