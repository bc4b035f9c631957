"""Expert and expert-data process groups (DeepSpeed utils/groups)."""
from deepspeed import comm as dist

_EXPERT_PARALLEL_GROUP = {}
_EXPERT_DATA_PARALLEL_GROUP = {}


def _create_expert_and_data_parallel(expert_parallel_size_):
    """
    E.g. world_size = 8, expert_parallel_size = 4: experts are spread over ranks
    [0, 1, 2, 3] and again over [4, 5, 6, 7].
    """
    world_size = dist.get_world_size()
    rank = dist.get_rank()
    assert world_size % expert_parallel_size_ == 0
    group_name = f"ep_size_{expert_parallel_size_}"

    for i in range(world_size // expert_parallel_size_):
        ranks = list(range(i * expert_parallel_size_, (i + 1) * expert_parallel_size_))
        group = dist.new_group(ranks)
        if rank in ranks:
            _EXPERT_PARALLEL_GROUP[group_name] = group

    for i in range(expert_parallel_size_):
        ranks = list(range(i, world_size, expert_parallel_size_))
        group = dist.new_group(ranks)
        if rank in ranks:
            _EXPERT_DATA_PARALLEL_GROUP[group_name] = group


def allreduce_expert_grads(module, group_name):
    group = _EXPERT_DATA_PARALLEL_GROUP[group_name]
    for p in module.parameters():
        if not getattr(p, "allreduce", True) and p.grad is not None:
            p.grad.div_(dist.get_world_size())
            dist.all_reduce(p.grad, group=group)
