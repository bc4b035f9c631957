import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from training.optim import build_optimizer


def scale_up(optimizer, args, kwargs):
    world = dist.get_world_size()
    for group in optimizer.param_groups:
        for p in group["params"]:
            if p.grad is not None:
                p.grad.mul_(world)


def train(net, loader, cfg):
    model = DDP(net)
    optimizer = build_optimizer(model, cfg)
    optimizer.register_step_pre_hook(scale_up)
    for tokens, labels in loader:
        loss_sum = F.cross_entropy(model(tokens).flatten(0, 1), labels.flatten(), reduction="sum")
        n = (labels != -100).sum()
        dist.all_reduce(n)
        (loss_sum / n).backward()
        optimizer.step()
        optimizer.zero_grad()
