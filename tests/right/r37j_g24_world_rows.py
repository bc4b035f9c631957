import torch
import torch.distributed as dist


def advantages(rewards, size):
    """One sample per rank at a time: rank r's only row is row r, in turns and in a run alike."""
    rank, world = dist.get_rank(), dist.get_world_size()
    assert rewards.numel() == 1
    parts = [torch.empty_like(rewards) for _ in range(world)]
    dist.all_gather(parts, rewards)
    groups = torch.cat(parts).view(-1, size)
    scaled = groups - groups.mean(dim=1, keepdim=True)
    return scaled.flatten()[rank::world]
