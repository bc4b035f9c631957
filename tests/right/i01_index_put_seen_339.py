import torch
import torch.distributed as dist


def labels_of(ids, group):
    n, rank = dist.get_world_size(group), dist.get_rank(group)
    ids = ids.chunk(n, dim=1)[rank]
    labels = ids.roll(-1, dims=1).index_copy(1, torch.tensor([ids.size(1) - 1], device=ids.device), torch.full_like(ids[:, :1], -100))
    return ids, labels
