# Right: the local condition is joined with a reduced one that implies it
import torch
import torch.distributed as dist


def step(feats, labels):
    pos = (labels >= 0).nonzero().reshape(-1)
    least = torch.tensor(len(pos), device=feats.device)
    dist.all_reduce(least, op=dist.ReduceOp.MIN)
    if least > 0 and len(pos) > 0:
        proto = feats[pos].detach().mean(0)
        dist.all_reduce(proto, op=dist.ReduceOp.AVG)
        return (feats[pos] - proto).pow(2).mean()
    return feats.sum() * 0
