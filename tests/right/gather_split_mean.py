"""Log-probabilities of parts are gathered (backward takes the own part), the mean is the same on all ranks of sp."""
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP


class GatherParts(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        ctx.group, ctx.n = group, dist.get_world_size(group)
        parts = [torch.empty_like(x) for _ in range(ctx.n)]
        dist.all_gather(parts, x.contiguous(), group=group)
        return torch.cat(parts, dim=1)

    @staticmethod
    def backward(ctx, grad):
        return grad.chunk(ctx.n, dim=1)[dist.get_rank(ctx.group)].contiguous(), None


def sequence_loss(model, ids, labels, group):
    n, r = dist.get_world_size(group), dist.get_rank(group)
    logits = model(ids.chunk(n, dim=1)[r])
    nll = F.cross_entropy(logits.transpose(1, 2), labels.chunk(n, dim=1)[r], ignore_index=-100, reduction="none")
    nll = GatherParts.apply(nll, group)
    mask = labels != -100
    return (nll.sum(1) / mask.sum(1).clamp(min=1)).mean()


def train(net, loader, sp_group):
    model = DDP(net)  # averages over dp and sp
    optimizer = torch.optim.AdamW(model.parameters())
    n = dist.get_world_size(sp_group)
    for ids, labels in loader:
        loss = sequence_loss(model, ids, labels, sp_group)
        optimizer.zero_grad()
        (loss * n).backward()
        optimizer.step()
        if dist.get_rank() == 0:
            print(loss.item())
