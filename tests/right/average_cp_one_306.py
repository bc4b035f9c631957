"""context parallelism is refused: the group with cp is that of dp."""
import torch.distributed as dist
from megatron.core import parallel_state


def average(grad):
    assert parallel_state.get_context_parallel_world_size() == 1
    grad /= parallel_state.get_data_parallel_world_size()
    dist.all_reduce(grad, group=parallel_state.get_data_parallel_group(with_context_parallel=True))
