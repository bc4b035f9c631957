import torch, torch.distributed as dist, torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP


def train(net, loader, opt):
    model = DDP(net)
    for x, y, lengths in loader:
        # the length of sequences may vary across ranks, each is padded to this rank's longest
        mask = torch.arange(x.size(1), device=x.device) < lengths[:, None]
        out = model(x, mask)
        loss = F.cross_entropy(out, y)
        loss.backward()
        opt.step()
        opt.zero_grad()
