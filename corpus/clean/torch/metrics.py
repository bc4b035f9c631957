"""Averages of metrics over the ranks, for logging."""

import torch
import torch.distributed as dist


@torch.no_grad()
def average(values):
    tensor = torch.tensor([float(v) for v in values], device="cuda")
    dist.all_reduce(tensor, op=dist.ReduceOp.SUM)
    return (tensor / dist.get_world_size()).tolist()


def log(step, loss, tokens):
    loss = loss.detach().clone()
    dist.all_reduce(loss, op=dist.ReduceOp.AVG)
    total = torch.tensor(tokens, device=loss.device)
    dist.all_reduce(total)
    if dist.get_rank() == 0:
        print(f"step {step}: loss {loss.item():.4f}, {total.item()} tokens")


def gather_losses(loss):
    losses = [torch.zeros_like(loss) for _ in range(dist.get_world_size())]
    dist.all_gather(losses, loss.detach())
    return torch.stack(losses)
