import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class CorrelationLoss(nn.Module):
    """The in-place sum passes the gradient of each rank on; the factor makes up for the wrapper's mean."""

    def forward(self, a, b):
        n = dist.get_world_size()
        c = a.T @ b / (a.shape[0] * n)
        dist.all_reduce(c)
        loss = (c - torch.eye(c.shape[0], device=c.device)).pow(2).sum()
        return loss * n


def train(net, loader, sampler, epochs):
    model = DDP(net)
    crit = CorrelationLoss()
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    for e in range(epochs):
        sampler.set_epoch(e)
        for x1, x2 in loader:
            z1, z2 = model(torch.cat([x1, x2])).chunk(2)
            loss = crit(z1, z2)
            opt.zero_grad()
            loss.backward()
            opt.step()
            if dist.get_rank() == 0:
                print(loss.item() / dist.get_world_size())
