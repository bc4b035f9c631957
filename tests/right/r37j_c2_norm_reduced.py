import torch
import torch.distributed as dist


def global_norm(shard):
    sq = shard.float().pow(2).sum()
    dist.all_reduce(sq)
    return sq.sqrt()


def sharded_step(flat, param, opt):
    world = dist.get_world_size()
    shard = torch.empty(flat.numel() // world, device=flat.device)
    dist.reduce_scatter_tensor(shard, flat, op=dist.ReduceOp.AVG)
    norm = global_norm(shard)
    # an inf on any rank makes the norm inf on all
    if not torch.isfinite(norm):
        return False
    param.grad = shard * torch.clamp(1.0 / (norm + 1e-6), max=1.0)
    opt.step()
    return True
