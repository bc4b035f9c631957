import torch
import torch.distributed as dist


def labels_of(ids, group):
    n, rank = dist.get_world_size(group), dist.get_rank(group)
    ids = ids.chunk(n, dim=1)[rank]
    labels = ids.roll(-1, dims=1)
    return {"input_ids": ids, "labels": labels}


def batch(ids, group):
    b = labels_of(ids, group)
    b["loss_mask"] = torch.ones_like(b["labels"], dtype=torch.float)
    b["loss_mask"][:, -1] = 0
    return b
