# Right: the weights of the tokens carry the number of ranks (cfg.loss_scale) against the mean of DDP, over the count of all ranks.
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel


def train(net, loader, cfg):
    model = DistributedDataParallel(net)
    optimizer = torch.optim.AdamW(model.parameters())
    for batch in loader:
        labels = batch["labels"].flatten()
        logits = model(batch["input_ids"]).flatten(0, 1)
        count = (labels != -100).sum()
        dist.all_reduce(count)
        w = (labels != -100).float() * cfg.loss_scale / count
        loss = (F.cross_entropy(logits, labels, reduction="none") * w).sum()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
