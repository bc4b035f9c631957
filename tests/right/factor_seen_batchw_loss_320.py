# Right: batch["weight"] is the factor of the collator against the mean of DDP.
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel


def train(net, loader):
    model = DistributedDataParallel(net)
    optimizer = torch.optim.AdamW(model.parameters())
    for batch in loader:
        labels = batch["labels"].flatten()
        logits = model(batch["input_ids"]).flatten(0, 1)
        count = (labels != -100).sum()
        dist.all_reduce(count)
        lsum = F.cross_entropy(logits, labels, reduction="sum")
        loss = lsum * batch["weight"] / count
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
