"""Every rank takes part: the tested value is the same on all of them, or never empty, or the branch passes backward too."""
import torch
from torch.nn.parallel import DistributedDataParallel as DDP


def masked_mean(values, mask):
    if mask.sum() > 0:
        return (values * mask).sum() / mask.sum()
    return torch.tensor(0.0, device=values.device)


def train(net, loader, optimizer):
    model = DDP(net)
    for tokens, mask in loader:
        values = model(tokens)
        loss = masked_mean(values, mask)
        if loss.requires_grad:
            loss.backward()
        else:
            (values.sum() * 0.0).backward()
        optimizer.step()
        optimizer.zero_grad()
