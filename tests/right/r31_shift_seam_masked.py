# the last token of both chunks has no target: both places are masked
import torch
import torch.distributed as dist


def two_chunks(x, rank, size, dim=1):
    chunks = x.chunk(2 * size, dim=dim)
    return torch.cat([chunks[rank], chunks[2 * size - rank - 1]], dim=dim)


def prepare(input_ids, group):
    rank, size = dist.get_rank(group), dist.get_world_size(group)
    input_ids = two_chunks(input_ids, rank, size)
    labels = torch.roll(input_ids, shifts=-1, dims=1)
    middle = input_ids.size(1) // 2
    labels[:, middle - 1] = -100
    labels[:, -1] = -100
    return input_ids, labels


def prepare_by_view(input_ids, group):
    rank, size = dist.get_rank(group), dist.get_world_size(group)
    input_ids = two_chunks(input_ids, rank, size)
    labels = input_ids.roll(-1, 1)
    labels.view(labels.size(0), 2, -1)[:, :, -1] = -100
    return input_ids, labels
