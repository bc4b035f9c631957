"""Optimizer step with weights tied between pipeline stages (written from memory of huggingface/nanotron)."""
import torch
import torch.distributed as dist


class TiedParameter:
    """A parameter that has one copy on each of the pipeline ranks in global_ranks."""

    def __init__(self, param, global_ranks, group):
        self.param, self.global_ranks, self.group = param, global_ranks, group


def sync_dp_gradients(params, dp_group):
    for p in params:
        dist.all_reduce(p.grad, op=dist.ReduceOp.AVG, group=dp_group)


def sync_tied_weights_gradients(tied):
    # each copy has the gradient of its own use (embedding on the first stage, head on the last)
    for t in tied:
        dist.all_reduce(t.param.grad, op=dist.ReduceOp.SUM, group=t.group)


@torch.no_grad()
def clip_grad_norm(params, tied, pp_group, max_norm):
    rank = dist.get_rank()
    skip = {id(t.param) for t in tied if rank != t.global_ranks[0]}
    total = torch.zeros((), device="cuda")
    for p in params:
        if id(p) not in skip:
            total += p.grad.float().norm() ** 2
    dist.all_reduce(total, group=pp_group)
    norm = total.sqrt()
    coef = (max_norm / (norm + 1e-6)).clamp(max=1.0)
    for p in params:
        p.grad.mul_(coef)
    return norm


def train_step(engine, model, batch, optimizer, tied, groups, max_norm=1.0):
    engine.train_batch_iter(model, batch)
    params = [p for p in model.parameters() if p.requires_grad]
    sync_dp_gradients(params, groups.dp)
    norm = clip_grad_norm(params, tied, groups.pp, max_norm)  # BUG: the tied gradients are not complete yet
    sync_tied_weights_gradients(tied)
    optimizer.step()
    optimizer.zero_grad()
    return norm
