"""Labels of a sequence that is cut: the first token of the next rank is fetched before the shift is used."""
import torch
import torch.distributed as dist


def own_part(ids, cp_group):
    n, r = dist.get_world_size(cp_group), dist.get_rank(cp_group)
    return ids.chunk(n, dim=1)[r].contiguous()


def next_token_of_right(first, cp_group):
    n, r = dist.get_world_size(cp_group), dist.get_rank(cp_group)
    firsts = [torch.empty_like(first) for _ in range(n)]
    dist.all_gather(firsts, first.contiguous(), group=cp_group)
    if r == n - 1:
        return torch.full_like(first, -100)
    return firsts[r + 1]


def labels_of_part(part, cp_group):
    labels = torch.roll(part, shifts=-1, dims=1)
    labels[:, -1:] = next_token_of_right(part[:, :1], cp_group)
    return labels


def batches(loader, cp_group):
    for ids in loader:
        part = own_part(ids.cuda(), cp_group)
        yield part, labels_of_part(part, cp_group)


def train(model, loader, optimizer, cp_group, group):
    n = dist.get_world_size(group)
    for part, labels in batches(loader, cp_group):
        logits = model(part)
        nll = torch.nn.functional.cross_entropy(
            logits.flatten(0, 1), labels.flatten(), ignore_index=-100, reduction="sum"
        )
        count = (labels != -100).sum()
        dist.all_reduce(count, group=group)
        (nll / count).backward()
        for p in model.parameters():
            dist.all_reduce(p.grad, group=group)
        optimizer.step()
        optimizer.zero_grad()
