"""Sequence-parallel reward model: the score needs the hidden states of the whole sequence."""
import torch
import torch.distributed as dist
import torch.nn.functional as F


class _GatherForwardSplitBackward(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        ctx.rank, ctx.n = dist.get_rank(group), x.size(0)
        parts = [torch.empty_like(x) for _ in range(dist.get_world_size(group))]
        dist.all_gather(parts, x.contiguous(), group=group)
        return torch.cat(parts, dim=0)

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output[ctx.rank * ctx.n:(ctx.rank + 1) * ctx.n].contiguous(), None


def pool(hidden, sp_group):
    # hidden: [s/sp, h]
    full = _GatherForwardSplitBackward.apply(hidden, sp_group)
    return full.mean(dim=0)


def train_step(trunk, head, chosen, rejected, sp_group, dp_group, optimizer):
    # chosen, rejected: this rank's part of one sequence each
    r_chosen = head(pool(trunk(chosen), sp_group))
    r_rejected = head(pool(trunk(rejected), sp_group))
    loss = -F.logsigmoid(r_chosen - r_rejected).mean()
    loss.backward()
    for p in trunk.parameters():
        dist.all_reduce(p.grad, group=sp_group)
    for p in (*trunk.parameters(), *head.parameters()):
        dist.all_reduce(p.grad, op=dist.ReduceOp.AVG, group=dp_group)
    optimizer.step()
    optimizer.zero_grad()
    return loss.detach()
