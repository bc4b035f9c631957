import torch.distributed as dist
import torch.nn.functional as F
from torch.distributed.fsdp import fully_shard


def train_sum(model, loader, opt):
    fully_shard(model)
    model.set_gradient_divide_factor(1.0)
    for x, y in loader:
        tokens = (y != -100).sum()
        dist.all_reduce(tokens)
        loss = F.cross_entropy(model(x), y, reduction="sum", ignore_index=-100) / tokens
        loss.backward()
        opt.step()
        opt.zero_grad()


def train_mean(model, loader, opt):
    fully_shard(model)
    n = dist.get_world_size()
    for x, y in loader:
        tokens = (y != -100).sum()
        dist.all_reduce(tokens)
        loss = F.cross_entropy(model(x), y, reduction="sum", ignore_index=-100)
        (loss / tokens * n).backward()
        opt.step()
        opt.zero_grad()
