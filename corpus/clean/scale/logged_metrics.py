"""What is logged: sums and counts are reduced together, then divided; a mean of equal batches is averaged over the same group."""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP


def log_step(loss, dp_group):
    shown = loss.detach().clone()
    dist.all_reduce(shown, group=dp_group)
    return shown / dist.get_world_size(dp_group)


def evaluate(model, loader, dp_group):
    total = torch.zeros((), device="cuda")
    count = torch.zeros((), device="cuda")
    for inputs, labels in loader:
        total += F.cross_entropy(model(inputs).flatten(0, 1), labels.flatten(), reduction="sum")
        count += (labels != -100).sum()
    dist.all_reduce(total, group=dp_group)
    dist.all_reduce(count, group=dp_group)
    return (total / count).item()


def train(net, loader, test, dp_group):
    model = DDP(net, process_group=dp_group)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for inputs, labels in loader:
        loss = F.cross_entropy(model(inputs).flatten(0, 1), labels.flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        print(log_step(loss, dp_group).item())
    print(evaluate(model, test, dp_group))
