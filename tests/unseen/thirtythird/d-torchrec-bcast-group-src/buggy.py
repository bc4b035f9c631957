"""Run a function on one rank of a process group and share the result.

Source: https://github.com/meta-pytorch/torchrec/pull/4601
Wrong: the leader is picked by its rank inside the group, the broadcast takes the same number as a
global rank. For a group that does not start at global rank 0 this is another rank, or none of it.
Repair: name it a group rank in the broadcast too.
"""
from typing import Any, Callable, Dict, Optional, TypeVar

import torch.distributed as dist

T = TypeVar("T")


def invoke_on_rank_and_broadcast_result(
    pg: dist.ProcessGroup,
    rank: int,
    func: Callable[..., T],
    *args: Any,
    **kwargs: Any,
) -> T:
    if pg.rank() == rank:
        res: Optional[T] = func(*args, **kwargs)
    else:
        res = None
    object_list = [res]
    if pg.size() > 1:
        dist.broadcast_object_list(object_list, rank, group=pg)  # BUG: src is a global rank
    return object_list[0]


class NodeLocalPlanner:
    """One sharding plan for each node."""

    def __init__(self, planner, ranks_per_node: int) -> None:
        self._planner = planner
        world = dist.get_world_size()
        for start in range(0, world, ranks_per_node):
            ranks = list(range(start, start + ranks_per_node))
            pg = dist.new_group(ranks)
            if dist.get_rank() in ranks:
                self._intra_pg = pg

    def collective_plan(self, module, sharders) -> Dict[str, Any]:
        return invoke_on_rank_and_broadcast_result(self._intra_pg, 0, self._planner.plan, module, sharders)
