import random
import torch
import torch.distributed as dist


def common_seed(seed, group=None):
    box = [seed]
    dist.broadcast_object_list(box, src=0, group=group)
    return box[0]


def shuffled_shard(files, seed, group):
    seed = common_seed(seed)
    files = random.Random(seed).sample(files, len(files))
    shards = [files[i :: dist.get_world_size(group)] for i in range(dist.get_world_size(group))]
    return shards[dist.get_rank(group)]
