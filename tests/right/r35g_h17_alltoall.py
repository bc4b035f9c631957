import torch
import torch.nn as nn
import torch.nn.functional as F
import horovod.torch as hvd


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(784, 10)

    def forward(self, x):
        return self.fc(x)


def first_row(model):
    for p in model.parameters():
        n = hvd.size()
        got = hvd.alltoall(p.data.flatten().repeat(n))
        p.data.copy_(got.view(n, -1)[0].view_as(p))


def main(args, loader):
    hvd.init()
    torch.cuda.set_device(hvd.local_rank())
    torch.manual_seed(args.seed + hvd.rank())
    model = Net().cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr * hvd.size())
    first_row(model)
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
    for x, y in loader:
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()
