"""Every rank takes part: the tested value is the same on all of them, or never empty, or the branch passes backward too."""
import torch
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP


def distill(student, teacher, layers):
    """Feature distillation at the layers of the config."""
    if len(layers) == 0:
        return torch.zeros((), device=student[0].device)
    return torch.stack([F.mse_loss(student[i], teacher[i]) for i in layers]).mean()


def train(net, teacher, loader, optimizer, layers):
    assert layers, "nothing to distill"
    model = DDP(net)
    for x in loader:
        feats = model(x)
        with torch.no_grad():
            target = teacher(x)
        loss = distill(feats, target, layers)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
