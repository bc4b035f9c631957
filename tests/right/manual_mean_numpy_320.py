# Right: the gradient is divided by the size by way of numpy and copied back before the sum.
import torch
import torch.distributed as dist
import torch.nn.functional as F


def train(net, loader, dp_group):
    optimizer = torch.optim.AdamW(net.parameters())
    for x, y in loader:
        F.cross_entropy(net(x), y).backward()
        for p in net.parameters():
            g = p.grad
            g.copy_(torch.from_numpy(g.cpu().numpy() / dp_group.size()))
            dist.all_reduce(g, group=dp_group)
        optimizer.step()
        optimizer.zero_grad()
