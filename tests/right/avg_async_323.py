import torch, torch.distributed as dist, torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP


def train(net, loader, accum):
    model = DDP(net)
    opt = torch.optim.AdamW(model.parameters())
    it = iter(loader)
    for _ in range(100):
        bs = [next(it) for _ in range(accum)]
        n = sum((b["y"] != -100).sum() for b in bs).float()
        work = dist.all_reduce(n, op=dist.ReduceOp.AVG, async_op=True)
        work.wait()
        for i, b in enumerate(bs):
            s = F.cross_entropy(model(b["x"]).flatten(0, 1), b["y"].flatten(), reduction="sum", ignore_index=-100)
            (s / n).backward()
        opt.step()
        opt.zero_grad()
