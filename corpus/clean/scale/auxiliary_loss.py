"""A router loss beside the main one: both are means over the tokens of a rank, and the wrapper averages both."""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP


def train(net, loader, dp_group, z_coef):
    model = DDP(net, process_group=dp_group)
    optimizer = torch.optim.AdamW(model.parameters())
    dp_size = dist.get_world_size(dp_group)
    for tokens, labels in loader:
        logits, router_logits = model(tokens)
        num_tokens = (labels != -100).sum()
        dist.all_reduce(num_tokens, group=dp_group)
        main_loss = F.cross_entropy(logits.flatten(0, 1), labels.flatten(), reduction="sum") * dp_size / num_tokens
        z_loss = torch.logsumexp(router_logits, dim=-1).pow(2).mean()
        loss = main_loss + z_coef * z_loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
