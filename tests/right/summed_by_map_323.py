# Right: the sum of losses is divided by the count of all ranks and gradients are summed: the mean over all tokens; summed in place by list(map(partial(dist.all_reduce, ...), [t])).
from functools import partial
import torch
import torch.distributed as dist
import torch.nn.functional as F


def train(model, loader, optimizer, group):
    # the loss is the mean over all tokens of the global batch
    for tokens, labels in loader:
        loss = F.cross_entropy(model(tokens).flatten(0, 1), labels.flatten(), ignore_index=-100, reduction="sum")
        count = (labels != -100).sum()
        list(map(partial(dist.all_reduce, group=group), [count]))
        loss = loss / count
        loss.backward()
        for param in model.parameters():
            dist.all_reduce(param.grad, group=group)
        optimizer.step()
        optimizer.zero_grad()
