# ranks cut the samples between them, and each sequence is whole: the shift stays inside of a sequence
import torch
import torch.distributed as dist
import torch.nn.functional as F


def rows(x, rank, size, dim=0):
    return x.chunk(size, dim=dim)[rank]


def prepare(input_ids, loss_mask, group):
    rank, size = dist.get_rank(group), dist.get_world_size(group)
    input_ids, loss_mask = rows(input_ids, rank, size), rows(loss_mask, rank, size)
    labels = torch.roll(input_ids, shifts=-1, dims=1)
    label_mask = F.pad(loss_mask[:, 1:], (0, 1), value=0)
    return input_ids, labels, label_mask


def prepare_slices(batch, rank, size):
    n = batch["input_ids"].size(0) // size
    own = {key: value[rank * n : (rank + 1) * n] for key, value in batch.items()}
    own["labels"] = own["input_ids"].roll(-1, 1)
    return own
