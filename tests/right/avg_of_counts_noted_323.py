import torch, torch.distributed as dist, torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP


def train(net, loader):
    model = DDP(net)
    opt = torch.optim.AdamW(model.parameters())
    for x, y in loader:
        # the number of tokens differs across ranks: the mean of the counts makes the mean over all tokens of DDP's mean
        n = (y != -100).sum().float()
        dist.all_reduce(n, op=dist.ReduceOp.AVG)
        s = F.cross_entropy(model(x).flatten(0, 1), y.flatten(), reduction="sum", ignore_index=-100)
        (s / n).backward()
        opt.step()
        opt.zero_grad()
