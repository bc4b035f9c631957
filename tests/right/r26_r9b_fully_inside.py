# RIGHT: the function shards what it is given itself with fully_shard: torch's clip is right
import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp import fully_shard


def build_model(net):
    return FSDP(net)


def train_v2(model, loader):
    fully_shard(model)
    optimizer = torch.optim.AdamW(model.parameters())
    for x in loader:
        model(x).mean().backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
