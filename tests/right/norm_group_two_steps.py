"""Squares of experts are summed over their own group first, then both kinds over what splits them."""
import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor


def local(t):
    return t.to_local() if isinstance(t, DTensor) else t


@torch.no_grad()
def clip(model, largest, fsdp_group, ep_group, efsdp_group):
    """Dense: shards over fsdp. Experts: split over ep, shards of these over efsdp."""
    dense = torch.zeros((), device="cuda")
    experts = torch.zeros((), device="cuda")
    for name, p in model.named_parameters():
        if p.grad is None:
            continue
        square = local(p.grad).float().pow(2).sum()
        if ".experts." in name:
            experts += square
        else:
            dense += square
    dist.all_reduce(dense, group=fsdp_group)
    dist.all_reduce(experts, group=efsdp_group)
    dist.all_reduce(experts, group=ep_group)
    norm = (dense + experts).sqrt()
    factor = (largest / (norm + 1e-6)).clamp(max=1.0)
    for p in model.parameters():
        if p.grad is not None:
            local(p.grad).mul_(factor)
    return norm


def train(model, loader, optimizer, groups):
    for batch in loader:
        model(batch).mean().backward()
        norm = clip(model, 1.0, *groups)
        optimizer.step()
        optimizer.zero_grad()
        if dist.get_rank() == 0:
            print(norm.item())
