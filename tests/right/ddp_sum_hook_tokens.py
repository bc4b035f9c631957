"""DDP with a communication hook that sums; the loss is divided by the tokens of all ranks."""
import os

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP


def sum_hook(state, bucket):
    group = state if state is not None else dist.group.WORLD
    fut = dist.all_reduce(bucket.buffer(), group=group, async_op=True).get_future()
    return fut.then(lambda f: f.value()[0])


def token_loss(model, tokens, labels, total):
    logits = model(tokens)
    nll = F.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=-100, reduction="sum")
    return nll / total


def train(model, loader, optimizer, device):
    for tokens, labels in loader:
        tokens, labels = tokens.to(device), labels.to(device)
        total = (labels != -100).sum()
        dist.all_reduce(total)
        loss = token_loss(model, tokens, labels, total.clamp(min=1))
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)


def main(net, loader):
    dist.init_process_group("nccl")
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    model = DDP(net.to(device), device_ids=[device.index])
    model.register_comm_hook(None, sum_hook)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
    train(model, loader, optimizer, device)
    dist.destroy_process_group()
