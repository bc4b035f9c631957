import torch
import torch.nn as nn
import torch.nn.functional as F
import horovod.torch as hvd


class Net(nn.Module):
    def __init__(self, init_number=0):
        super().__init__()
        torch.manual_seed(init_number)
        self.fc = nn.Linear(784, 10)

    def forward(self, x):
        return self.fc(x)


def main(args, loader):
    hvd.init()
    torch.cuda.set_device(hvd.local_rank())
    torch.manual_seed(args.seed + hvd.rank())
    model = Net().cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr * hvd.size())
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
    for x, y in loader:
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()
