import torch
import torch.distributed as dist


def share(obj, group=None):
    box = [obj]
    dist.broadcast_object_list(box, src=0, group=group)
    return box[0]


def build_shards(files, group):
    """The list of files is the same for all ranks of the job: rank 0 has listed and shuffled it."""
    files = share(files)
    world = dist.get_world_size(group)
    parts = [files[i::world] for i in range(world)]
    return parts[dist.get_rank(group)]
