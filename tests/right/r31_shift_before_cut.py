# the whole sequence is shifted, and then each rank takes its two chunks of tokens and labels
import torch
import torch.distributed as dist


def two_chunks(x, rank, size, dim=1):
    chunks = x.chunk(2 * size, dim=dim)
    return torch.cat([chunks[rank], chunks[2 * size - rank - 1]], dim=dim)


def prepare(input_ids, loss_mask, group):
    rank, size = dist.get_rank(group), dist.get_world_size(group)
    labels = torch.roll(input_ids, shifts=-1, dims=1)
    label_mask = torch.roll(loss_mask, shifts=-1, dims=1)
    label_mask[:, -1] = 0
    input_ids = two_chunks(input_ids, rank, size)
    labels, label_mask = two_chunks(labels, rank, size), two_chunks(label_mask, rank, size)
    return input_ids, labels, label_mask


def prepare_by_name(batch, group):
    rank, size = dist.get_rank(group), dist.get_world_size(group)
    batch["labels"] = batch["input_ids"].roll(-1, 1)
    batch["labels"][:, -1] = -100
    return {key: two_chunks(value, rank, size) for key, value in batch.items()}
