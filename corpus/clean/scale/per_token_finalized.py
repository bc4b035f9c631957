"""Losses stay sums until the end: gradients are summed and then divided once by the tokens of all ranks and micro-batches."""

import torch
import torch.distributed as dist
import torch.nn.functional as F


def train_step(model, micro_batches, optimizer, dp_cp_group):
    total = torch.zeros((), device="cuda")
    for tokens, labels, mask in micro_batches:
        losses = F.cross_entropy(model(tokens).flatten(0, 1), labels.flatten(), reduction="none")
        loss = (losses * mask.flatten()).sum()
        loss.backward()
        total += mask.sum()
    dist.all_reduce(total, group=dp_cp_group)
    for param in model.parameters():
        if param.grad is not None:
            dist.all_reduce(param.grad, group=dp_cp_group)
            param.grad.mul_(1.0 / total)
    optimizer.step()
    optimizer.zero_grad()
