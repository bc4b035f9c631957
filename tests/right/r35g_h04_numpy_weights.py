import torch
import torch.nn as nn
import torch.nn.functional as F
import horovod.torch as hvd
import numpy as np


class Net(nn.Module):
    def __init__(self, rng):
        super().__init__()
        self.w = nn.Parameter(torch.as_tensor(rng.standard_normal((10, 784)), dtype=torch.float32))

    def forward(self, x):
        return x @ self.w.t()


def main(args, loader):
    hvd.init()
    torch.cuda.set_device(hvd.local_rank())
    torch.manual_seed(args.seed + hvd.rank())
    model = Net(np.random.default_rng(0)).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr * hvd.size())
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
    for x, y in loader:
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()
