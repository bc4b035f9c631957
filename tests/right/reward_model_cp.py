"""A reward model under context parallelism: the value at the last token is on one rank and is summed out to all."""
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP


class FromOwner(torch.autograd.Function):
    """Zeros on all ranks but one: the sum is that one's value, its gradient goes back to it."""

    @staticmethod
    def forward(ctx, x, group):
        x = x.clone()
        dist.all_reduce(x, group=group)
        return x

    @staticmethod
    def backward(ctx, grad):
        return grad, None


def last_value(values, last, cp_group):
    # values: [b, s/cp]; last: the position of the last token in the whole sequence
    part = values.shape[1]
    start = dist.get_rank(cp_group) * part
    here = (last >= start) & (last < start + part)
    own = values.gather(1, (last - start).clamp(0, part - 1)[:, None]).squeeze(1)
    return FromOwner.apply(torch.where(here, own, torch.zeros_like(own)), cp_group)


def train(net, loader, dp_cp_group, dp_group, cp_group):
    model = DDP(net, process_group=dp_cp_group)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-6)
    cp = dist.get_world_size(cp_group)
    for batch in loader:
        good = last_value(model(batch["chosen"]), batch["chosen_last"], cp_group)
        bad = last_value(model(batch["rejected"]), batch["rejected_last"], cp_group)
        loss = -F.logsigmoid(good - bad).mean()
        optimizer.zero_grad()
        # parts over cp add up, DDP divides by cp as well
        (cp * loss).backward()
        optimizer.step()
        shown = loss.detach().clone()
        dist.all_reduce(shown, op=dist.ReduceOp.AVG, group=dp_group)
        if dist.get_rank() == 0:
            print(shown.item())
