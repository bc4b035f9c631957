"""Tensor parallelism with torch.distributed.nn: its sum has a sum as backward, so the loss is divided by the size."""
import torch
import torch.distributed as dist
import torch.distributed.nn.functional as dist_fn
import torch.nn as nn
import torch.nn.functional as F


class HeadsSum(nn.Module):
    """Output is the sum over ranks of a linear map of each rank's own features (feature parallelism)."""

    def __init__(self, own, classes, group):
        super().__init__()
        self.group = group
        self.fc = nn.Linear(own, classes, bias=False)

    def forward(self, own_features):
        return dist_fn.all_reduce(self.fc(own_features), group=self.group)


def train(encoder, head, loader, group):
    """Every rank has an encoder of its own modality; all ranks see the same samples and labels."""
    n = dist.get_world_size(group)
    params = [*encoder.parameters(), *head.parameters()]
    optimizer = torch.optim.AdamW(params)
    for views, y in loader:
        logits = head(encoder(views[dist.get_rank(group)]))
        # n equal losses are differentiated, the backward of the sum adds their gradients
        loss = F.cross_entropy(logits, y) / n
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if dist.get_rank(group) == 0:
            print(loss.item() * n)
