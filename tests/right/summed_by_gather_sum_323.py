# Right: the sum of losses is divided by the count of all ranks and gradients are summed: the mean over all tokens; gathered, summed, and copied back into the tensor.
import torch
import torch.distributed as dist
import torch.nn.functional as F


def train(model, loader, optimizer, group):
    # the loss is the mean over all tokens of the global batch
    for tokens, labels in loader:
        loss = F.cross_entropy(model(tokens).flatten(0, 1), labels.flatten(), ignore_index=-100, reduction="sum")
        count = (labels != -100).sum()
        parts = [torch.empty_like(count) for _ in range(group.size())]
        dist.all_gather(parts, count, group=group)
        count.copy_(torch.stack(parts).sum(0))
        loss = loss / count
        loss.backward()
        for param in model.parameters():
            dist.all_reduce(param.grad, group=group)
        optimizer.step()
        optimizer.zero_grad()
