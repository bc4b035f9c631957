import torch
import torch.nn as nn
import torch.nn.functional as F
import horovod.torch as hvd


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(784, 10)

    def init_weights(self, number):
        g = torch.Generator().manual_seed(number)
        for p in self.parameters():
            p.data.normal_(0, 0.02, generator=g)

    def forward(self, x):
        return self.fc(x)


def main(args, loader):
    hvd.init()
    torch.cuda.set_device(hvd.local_rank())
    torch.manual_seed(args.seed + hvd.rank())
    model = Net().cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr * hvd.size())
    model.init_weights(0)
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
    for x, y in loader:
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()
