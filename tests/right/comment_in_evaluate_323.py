import torch, torch.distributed as dist, torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP


def evaluate(model, loader):
    # the number of samples differs across ranks: sums are gathered
    s = torch.zeros(2, device="cuda")
    for x, y in loader:
        s[0] += F.cross_entropy(model(x), y, reduction="sum")
        s[1] += y.numel()
    dist.all_reduce(s)
    return s[0] / s[1]


def train(net, loader, val, opt):
    model = DDP(net)
    for x, y in loader:
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        opt.step()
        opt.zero_grad()
    print(evaluate(model, val))
