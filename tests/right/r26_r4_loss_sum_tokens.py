# RIGHT: ranks of ep share the batch (ep is orthogonal to dp): experts see the tokens of their own dp replicas only
import torch.distributed as dist

# ep ranks hold the same batch (experts split as in tensor parallelism, outputs are summed); edp == dp group


def build(world, ep_size):
    rank = dist.get_rank()
    dp = None
    for i in range(ep_size):
        ranks = list(range(i, world, ep_size))
        g = dist.new_group(ranks)
        if rank in ranks:
            dp = g
    return dp, dp


def average(params, dp, edp):
    for p in params:
        group = dp
        if getattr(p, "is_expert", False):
            group = edp
        world = dist.get_world_size(group)
        p.grad.div_(world)
        dist.all_reduce(p.grad, group=group)
