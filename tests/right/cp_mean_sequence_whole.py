"""Per-sequence means under context parallelism: each sequence's own count comes from its whole labels."""
import torch
import torch.distributed as dist
import torch.nn.functional as F


def own(x, group):
    return x.chunk(dist.get_world_size(group), dim=1)[dist.get_rank(group)]


def sequence_means(model, ids, labels, cp_group):
    lengths = (labels != -100).sum(1).clamp(min=1)  # of whole sequences
    part = own(labels, cp_group)
    logits = model(own(ids, cp_group))
    nll = F.cross_entropy(logits.transpose(1, 2), part, ignore_index=-100, reduction="none")
    return (nll.sum(1) / lengths).mean()


def train(model, loader, optimizer, dp_group, cp_group):
    for ids, labels in loader:
        loss = sequence_means(model, ids, labels, cp_group)
        loss.backward()
        for p in model.parameters():
            dist.all_reduce(p.grad, group=cp_group)
            dist.all_reduce(p.grad, op=dist.ReduceOp.AVG, group=dp_group)
        optimizer.step()
        optimizer.zero_grad()
        shown = loss.detach().clone()
        dist.all_reduce(shown, group=cp_group)
        dist.all_reduce(shown, op=dist.ReduceOp.AVG, group=dp_group)
        if dist.get_rank() == 0:
            print(shown.item())
