# Right: the sum of losses is divided by the count of all ranks and gradients are summed: the mean over all tokens; reduce-scattered, gathered, and copied back (two-shot all-reduce).
import torch
import torch.distributed as dist
import torch.nn.functional as F


def train(model, loader, optimizer, group):
    # the loss is the mean over all tokens of the global batch
    for tokens, labels in loader:
        loss = F.cross_entropy(model(tokens).flatten(0, 1), labels.flatten(), ignore_index=-100, reduction="sum")
        count = (labels != -100).sum()
        flat = count.reshape(-1)
        pad = torch.nn.functional.pad(flat, (0, -flat.numel() % group.size()))
        part = pad.new_empty(pad.numel() // group.size())
        dist.reduce_scatter_tensor(part, pad, group=group)
        dist.all_gather_into_tensor(pad, part, group=group)
        count.copy_(pad[: flat.numel()].view_as(count))
        loss = loss / count
        loss.backward()
        for param in model.parameters():
            dist.all_reduce(param.grad, group=group)
        optimizer.step()
        optimizer.zero_grad()
