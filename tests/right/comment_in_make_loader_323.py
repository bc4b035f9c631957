import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP


def make_loader(ds):
    # samples differ across ranks
    return torch.utils.data.DataLoader(ds, sampler=torch.utils.data.distributed.DistributedSampler(ds))


def train(net, ds, opt):
    loader = make_loader(ds)
    model = DDP(net)
    for x, y in loader:
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        opt.step()
        opt.zero_grad()
