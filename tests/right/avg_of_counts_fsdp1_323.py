import torch, torch.distributed as dist, torch.nn.functional as F
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, ShardingStrategy


def train(net, loader, accum):
    model = FSDP(net, sharding_strategy=ShardingStrategy.FULL_SHARD, use_orig_params=True)
    opt = torch.optim.AdamW(model.parameters())
    world = dist.get_world_size()
    it = iter(loader)
    for _ in range(100):
        bs = [next(it) for _ in range(accum)]
        n = sum((b["y"] != -100).sum() for b in bs).float()
        dist.all_reduce(n, op=dist.ReduceOp.AVG)
        for i, b in enumerate(bs):
            s = F.cross_entropy(model(b["x"]).flatten(0, 1), b["y"].flatten(), reduction="sum", ignore_index=-100)
            (s / n).backward()
        model.clip_grad_norm_(1.0)
        opt.step()
        opt.zero_grad()
