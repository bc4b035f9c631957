"""A constant denominator per sequence under context parallelism: parts add up."""
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


def loss_of(logp, old, adv, mask, max_tokens):
    ratio = (logp - old).exp()
    obj = torch.min(ratio * adv, ratio.clamp(0.8, 1.2) * adv) * mask
    return -(obj.sum(-1) / max_tokens).mean()


def train(policy, rollouts, optimizer_of, dp_cp_group, cp_group, max_tokens=4096):
    model = DDP(policy, process_group=dp_cp_group)
    optimizer = optimizer_of(model.parameters())
    cp = dist.get_world_size(cp_group)
    for r in rollouts:
        # max_tokens is that of whole sequences; DDP divides by cp as well
        loss = loss_of(model(r["ids"]), r["old"], r["adv"], r["mask"], max_tokens) * cp
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
