# images are another sequence: their patches are cut in runs and gathered again before they meet the text
import torch
import torch.distributed as dist


def two_chunks(x, cp_rank, cp_size, dim=1):
    chunks = x.chunk(2 * cp_size, dim=dim)
    return torch.cat([chunks[cp_rank], chunks[2 * cp_size - cp_rank - 1]], dim=dim)


def prepare(tokens, cp_group):
    return two_chunks(tokens, dist.get_rank(cp_group), dist.get_world_size(cp_group))


def encode(tower, patch_embeds, cp_group):
    cp_rank, cp_size = dist.get_rank(cp_group), dist.get_world_size(cp_group)
    part = tower(patch_embeds.chunk(cp_size, dim=0)[cp_rank])
    parts = [torch.empty_like(part) for _ in range(cp_size)]
    dist.all_gather(parts, part, group=cp_group)
    return torch.cat(parts)


def encode_frames(tower, video_embeds, cp_rank, cp_size):
    return tower(video_embeds.chunk(cp_size, dim=0)[cp_rank])
