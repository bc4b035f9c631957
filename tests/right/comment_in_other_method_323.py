import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP

# token counts differ across ranks, see data.py


class Trainer:
    # samples vary across ranks

    def __init__(self, net, opt):
        self.model, self.opt = DDP(net), opt

    def shuffle(self, epoch):
        # order of samples differs between ranks
        self.epoch = epoch

    def train(self, loader):
        self.shuffle(0)
        for x, y in loader:
            loss = F.cross_entropy(self.model(x), y)
            loss.backward()
            self.opt.step()
            self.opt.zero_grad()
