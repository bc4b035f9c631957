# Right: the weights of the tokens carry the number of ranks (int(os.environ["WORLD_SIZE"])) against the mean of DDP, over the count of all ranks.
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel
import os


def train(net, loader):
    model = DistributedDataParallel(net)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for tokens, labels in loader:
        out = model(tokens)
        count = (labels != -100).sum()
        dist.all_reduce(count)
        w = (labels != -100).float() * int(os.environ["WORLD_SIZE"]) / count
        loss = (F.cross_entropy(out, labels, reduction="none") * w).sum()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
