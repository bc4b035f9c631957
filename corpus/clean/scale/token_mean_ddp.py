"""Mean over the tokens of all ranks: sums are divided by the global count, and the average of the wrapper is undone."""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP


def train(net, loader, lr):
    model = DDP(net.cuda())
    optimizer = torch.optim.AdamW(model.parameters(), lr=lr)
    for inputs, labels in loader:
        optimizer.zero_grad()
        logits = model(inputs)
        loss_sum = F.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=-100, reduction="sum")
        num_tokens = (labels != -100).sum()
        dist.all_reduce(num_tokens)
        loss = loss_sum * dist.get_world_size() / num_tokens
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
