import torch
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP


def train(net, loader, optimizer):
    model = DDP(net)
    for micro_batches in loader:
        for ids, mask in micro_batches:
            losses = F.cross_entropy(model(ids).transpose(1, 2), ids, reduction="none")
            loss = (losses * mask).sum() / mask.sum()
            (loss / len(micro_batches)).backward()
        optimizer.step()
        optimizer.zero_grad()
