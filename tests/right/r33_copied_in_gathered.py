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
    """Each rank keeps a slice of every weight and gathers it when it is needed."""

    def __init__(self, n_in, n_hid):
        super().__init__()
        n = dist.get_world_size()
        self.shard = nn.Parameter(torch.randn(n_hid // n, n_in))

    @classmethod
    def of(cls, net):
        n, r = dist.get_world_size(), dist.get_rank()
        m = cls(net.w1.size(0), net.w1.size(1)).cuda()
        m.shard.data.copy_(net.w1.data.t().chunk(n, dim=0)[r])
        return m

    def forward(self, x):
        return F.linear(x, Whole.apply(self.shard))


class Whole(torch.autograd.Function):
    @staticmethod
    def forward(ctx, shard):
        n = dist.get_world_size()
        out = torch.empty(n * shard.size(0), shard.size(1), device=shard.device)
        dist.all_gather_into_tensor(out, shard.contiguous())
        return out

    @staticmethod
    def backward(ctx, grad):
        n = dist.get_world_size()
        out = torch.empty(grad.size(0) // n, grad.size(1), device=grad.device)
        dist.reduce_scatter_tensor(out, grad.contiguous())
        return out / n


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
