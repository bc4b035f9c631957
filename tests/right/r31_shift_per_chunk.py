# each chunk is shifted by itself, and its last label is the first token of the chunk behind it, which all ranks tell
import torch
import torch.distributed as dist


def prepare(input_ids, group):
    rank, size = dist.get_rank(group), dist.get_world_size(group)
    chunks = input_ids.chunk(2 * size, dim=1)
    own = [chunks[rank], chunks[2 * size - rank - 1]]
    firsts = torch.stack([chunk[:, 0] for chunk in own])
    told = [torch.empty_like(firsts) for _ in range(size)]
    dist.all_gather(told, firsts, group=group)
    labels = []
    for place, chunk in zip((rank, 2 * size - rank - 1), own):
        if place + 1 == 2 * size:
            fill = torch.full_like(chunk[:, :1], -100)
        else:
            following = place + 1
            fill = told[following][0] if following < size else told[2 * size - 1 - following][1]
            fill = fill.unsqueeze(1)
        labels.append(torch.cat([chunk[:, 1:], fill], dim=1))
    return torch.cat(own, dim=1), torch.cat(labels, dim=1)
