import torch, torch.distributed as dist, torch.nn.functional as F
import torch.distributed._functional_collectives as funcol
from torch.distributed.fsdp import fully_shard


def train(model, loader, accum, mesh):
    fully_shard(model, mesh=mesh)
    opt = torch.optim.AdamW(model.parameters())
    it = iter(loader)
    for _ in range(100):
        bs = [next(it) for _ in range(accum)]
        n = sum((b["y"] != -100).sum() for b in bs).float()
        n = funcol.all_reduce(n, "avg", mesh)
        for i, b in enumerate(bs):
            s = F.cross_entropy(model(b["x"]).flatten(0, 1), b["y"].flatten(), reduction="sum", ignore_index=-100)
            (s / n).backward()
        opt.step()
        opt.zero_grad()
