import torch, torch.distributed as dist, torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP


def train(net, loader, accum, seq):
    """Packed batches: every micro-batch of every rank has the same number of tokens."""
    model = DDP(net)
    opt = torch.optim.AdamW(model.parameters())
    it = iter(loader)
    for _ in range(100):
        bs = [next(it) for _ in range(accum)]
        n = sum(b["y"].numel() for b in bs)
        for b in bs:
            (F.cross_entropy(model(b["x"]).flatten(0, 1), b["y"].flatten(), reduction="sum") / n).backward()
        opt.step()
        opt.zero_grad()
