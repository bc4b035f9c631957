import torch.distributed as dist
from megatron.core import parallel_state


def average(grad):
    """Losses of context-parallel ranks are parts of one mean: summed over cp, averaged over dp."""
    grad /= parallel_state.get_data_parallel_world_size()
    dist.all_reduce(grad, group=parallel_state.get_data_parallel_group(with_context_parallel=True))
