import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler


def main(dataset, lr=0.01):
    """normalised gradient descent written in the loop"""
    dist.init_process_group("nccl")
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(20, 20), nn.ReLU(), nn.Linear(20, 3)).cuda()
    for x, y in DataLoader(dataset, 32, sampler=DistributedSampler(dataset)):
        net.zero_grad()
        F.cross_entropy(net(x.cuda()), y.cuda()).backward()
        grads = []
        for p in net.parameters():
            dist.all_reduce(p.grad)
            grads.append(p.grad)
        norm = torch.stack([g.norm() for g in grads]).norm()
        with torch.no_grad():
            for p in net.parameters():
                p -= lr * p.grad / norm
