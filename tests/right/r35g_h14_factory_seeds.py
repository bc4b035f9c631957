import torch
import torch.nn as nn
import torch.nn.functional as F
import horovod.torch as hvd


def make_net(number=0):
    state = torch.random.initial_seed()
    torch.manual_seed(number)
    net = nn.Linear(784, 10)
    torch.manual_seed(state)
    return net


def main(args, loader):
    hvd.init()
    torch.cuda.set_device(hvd.local_rank())
    torch.manual_seed(args.seed + hvd.rank())
    model = make_net().cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr * hvd.size())
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
    for x, y in loader:
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()
