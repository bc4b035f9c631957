# Right: as the comment at the loss says, every rank has the same number of targets.
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel


def train(net, loader):
    model = DistributedDataParallel(net)
    optimizer = torch.optim.AdamW(model.parameters())
    # the loss is the mean over all tokens of the global batch
    for batch in loader:
        labels = batch["labels"].flatten()
        logits = model(batch["input_ids"]).flatten(0, 1)
        loss = F.cross_entropy(logits, labels, ignore_index=-100)  # the packer gives every rank the same number of targets
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
