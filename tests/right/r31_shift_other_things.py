# what is rolled is no label of the part: positions of pairs, a mask of changes, and a shift to the right for a decoder's input
import torch
import torch.distributed as dist


def two_chunks(x, rank, size, dim=1):
    chunks = x.chunk(2 * size, dim=dim)
    return torch.cat([chunks[rank], chunks[2 * size - rank - 1]], dim=dim)


def segments(position_ids, group):
    rank, size = dist.get_rank(group), dist.get_world_size(group)
    position_ids = two_chunks(position_ids, rank, size)
    return position_ids.roll(-1, 1) - position_ids != 1


def decoder_input(labels, start, group):
    rank, size = dist.get_rank(group), dist.get_world_size(group)
    shifted = torch.cat([torch.full_like(labels[:, :1], start), labels[:, :-1]], dim=1)
    return two_chunks(shifted, rank, size), two_chunks(labels, rank, size)


def loss(logits, labels):
    logits = logits[:, :-1].flatten(0, 1)
    return torch.nn.functional.cross_entropy(logits, labels[:, 1:].flatten())
