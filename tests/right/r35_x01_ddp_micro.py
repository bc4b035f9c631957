import torch
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP


def train(net, get_batch, optimizer, steps, accum_steps):
    model = DDP(net)
    for _ in range(steps):
        for micro in range(accum_steps):
            ids, mask = get_batch()
            losses = F.cross_entropy(model(ids).transpose(1, 2), ids, reduction="none")
            loss = (losses * mask).sum() / mask.sum()
            (loss / accum_steps).backward()
        optimizer.step()
        optimizer.zero_grad()
