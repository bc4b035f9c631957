# Right: each mean is weighted by its share of all targets times the ranks; the total is summed by the method of the process group.
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
        n = (labels != -100).sum()
        total = n.clone()
        dist.group.WORLD.allreduce([total]).wait()
        loss = F.cross_entropy(logits, labels, ignore_index=-100) * (n * dist.get_world_size() / total)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
