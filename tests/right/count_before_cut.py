"""Tokens are counted on the whole sequence before it is cut over cp; counts are summed over dp only."""
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP


def cut(x, group, dim=1):
    n, r = dist.get_world_size(group), dist.get_rank(group)
    return x.chunk(n, dim=dim)[r].contiguous()


def prepare(batch, dp_group, cp_group):
    labels = batch["labels"]
    count = (labels != -100).sum()
    # ranks of cp have counted the same sequence
    dist.all_reduce(count, group=dp_group)
    return cut(batch["tokens"], cp_group), cut(labels, cp_group), count


def train(net, loader, dp_group, cp_group, dp_cp_group):
    model = DDP(net, process_group=dp_cp_group)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    size = dist.get_world_size(dp_cp_group)
    for batch in loader:
        tokens, labels, count = prepare(batch, dp_group, cp_group)
        logits = model(tokens)
        nll = F.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=-100, reduction="sum")
        loss = nll * size / count
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
