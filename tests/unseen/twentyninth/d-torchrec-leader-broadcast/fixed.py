"""Run a function on one rank of a process group and hand the result to the whole group."""
from functools import wraps
from typing import Any, Callable, List, Optional, TypeVar, cast

import torch.distributed as dist

T = TypeVar("T")


def is_leader(pg: Optional[dist.ProcessGroup], leader_rank: int = 0) -> bool:
    if pg is None:
        return leader_rank == 0
    return pg.rank() == leader_rank


def invoke_on_rank_and_broadcast_result(
    pg: dist.ProcessGroup, rank: int, func: Callable[..., T], *args: Any, **kwargs: Any
) -> T:
    """``rank`` is the rank inside ``pg``, which may be an intra-node group."""
    if pg.rank() == rank:
        res = func(*args, **kwargs)
        object_list: List[Optional[T]] = [res]
    else:
        object_list = [None]
    if pg.size() > 1:
        dist.broadcast_object_list(object_list, group_src=rank, group=pg)
    return cast(T, object_list[0])


def run_on_leader(pg: dist.ProcessGroup, rank: int):
    def callable(func: Callable[..., T]) -> T:
        @wraps(func)
        def _wrapped(*args: Any, **kwargs: Any) -> T:
            return invoke_on_rank_and_broadcast_result(pg, rank, func, *args, **kwargs)

        return _wrapped

    return callable
