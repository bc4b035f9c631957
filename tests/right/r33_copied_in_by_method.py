import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn


class Copy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad):
        grad = grad.clone()
        dist.all_reduce(grad)
        return grad


class Sum(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        x = x.clone()
        dist.all_reduce(x)
        return x

    @staticmethod
    def backward(ctx, grad):
        return grad


class Net(nn.Module):
    def __init__(self, n_in, n_hid, n_out):
        super().__init__()
        self.w1 = nn.Parameter(torch.randn(n_in, n_hid))
        self.w2 = nn.Parameter(torch.randn(n_hid, n_out))
        self.b2 = nn.Parameter(torch.zeros(n_out))

    def forward(self, x):
        return (x @ self.w1).relu() @ self.w2 + self.b2


class TPNet(nn.Module):
    def __init__(self, n_in, n_hid, n_out):
        super().__init__()
        n = dist.get_world_size()
        self.w1 = nn.Parameter(torch.randn(n_in, n_hid // n))
        self.w2 = nn.Parameter(torch.randn(n_hid // n, n_out))

    def forward(self, x):
        return Sum.apply((Copy.apply(x) @ self.w1).relu() @ self.w2)

    @torch.no_grad()
    def load(self, net):
        n, r = dist.get_world_size(), dist.get_rank()
        self.w1.copy_(net.w1.chunk(n, dim=1)[r])
        self.w2.copy_(net.w2.chunk(n, dim=0)[r])

    @classmethod
    def of(cls, net):
        tp = cls(net.w1.size(0), net.w1.size(1), net.w2.size(1)).cuda()
        tp.load(net)
        return tp


def train(net, x, y):
    tp = TPNet.of(net)
    optimizer = torch.optim.SGD(tp.parameters(), lr=0.1)
    loss = F.mse_loss(tp(x), y)
    loss.backward()
    optimizer.step()


if __name__ == "__main__":
    dist.init_process_group("nccl")
    torch.manual_seed(0)
    net = Net(8, 16, 4).cuda()
    x, y = torch.randn(4, 8).cuda(), torch.randn(4, 4).cuda()
    train(net, x, y)
