# Right: the weights of the tokens carry the number of ranks (PartialState().num_processes) against the mean of DDP, over the count of all ranks.
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel
from accelerate import PartialState


def train(net, loader):
    model = DistributedDataParallel(net)
    optimizer = torch.optim.AdamW(model.parameters())
    for batch in loader:
        labels = batch["labels"].flatten()
        logits = model(batch["input_ids"]).flatten(0, 1)
        count = (labels != -100).sum()
        dist.all_reduce(count)
        w = (labels != -100).float() * PartialState().num_processes / count
        loss = (F.cross_entropy(logits, labels, reduction="none") * w).sum()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
