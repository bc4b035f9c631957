# Reduced from torchrec distributed/collective_utils.py (meta-pytorch/torchrec pull request 4601, read).
# One rank of the group plans, the others take its plan. The leader is chosen by pg.rank(), a rank
# inside the group; broadcast's `src` is a rank of the default group.
# What happens: in a group without global rank 0 (any but the first host) the call raises or waits
# for a rank that is not the one which planned.
from functools import wraps

import torch.distributed as dist


def is_leader(pg, leader_rank=0):
    if pg is None:
        return leader_rank == 0
    return pg.rank() == leader_rank


def invoke_on_rank_and_broadcast_result(pg, rank, func, *args, **kwargs):
    """Run `func` on the group rank `rank` of `pg` and give the result to the group."""
    if pg.rank() == rank:
        res = func(*args, **kwargs)
        object_list = [res]
    else:
        object_list = [None]
    if pg.size() > 1:
        dist.broadcast_object_list(object_list, group=pg, group_src=rank)
    return object_list[0]


def run_on_leader(pg, rank):
    def callable(func):
        @wraps(func)
        def wrapped(*args, **kwargs):
            return invoke_on_rank_and_broadcast_result(pg, rank, func, *args, **kwargs)

        return wrapped

    return callable


def collective_plan(planner, module, sharders, intra_node_pg):
    # intra_node_pg: the ranks of one host
    return invoke_on_rank_and_broadcast_result(intra_node_pg, 0, planner.plan, module, sharders)
