"""Built on the meta device, materialised, and only then given its hooks, in another function."""
import torch
import torch.distributed as dist
import torch.nn as nn


def build(make, device="cuda"):
    with torch.device("meta"):
        model = make()
    model.to_empty(device=device)
    model.init_weights()
    return model


def add_tp_hooks(model, tp_group):
    """Norms and the router see this rank's part of the sequence: their gradients are summed over tp."""

    def hook(grad):
        grad = grad.clone()
        dist.all_reduce(grad, group=tp_group)
        return grad

    for name, p in model.named_parameters():
        if "norm" in name or "router" in name:
            p.register_hook(hook)


def synchronise(model, tp_group, dp_group):
    for name, p in model.named_parameters():
        dist.broadcast(p.data, src=dist.get_global_rank(dp_group, 0), group=dp_group)
        if "norm" in name or "router" in name:
            dist.broadcast(p.data, src=dist.get_global_rank(tp_group, 0), group=tp_group)


def train(make, loader, tp_group, dp_group):
    model = build(make)
    synchronise(model, tp_group, dp_group)
    add_tp_hooks(model, tp_group)
    model = nn.parallel.DistributedDataParallel(model, process_group=dp_group)
    optimizer = torch.optim.AdamW(model.parameters())
    for batch in loader:
        model(batch).mean().backward()
        optimizer.step()
        optimizer.zero_grad()
