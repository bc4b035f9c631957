"""divided by dp here and by cp in the next line."""
import torch.distributed as dist
from megatron.core import parallel_state


def average(grad):
    grad /= parallel_state.get_data_parallel_world_size()
    grad /= parallel_state.get_context_parallel_world_size()
    dist.all_reduce(grad, group=parallel_state.get_data_parallel_group(with_context_parallel=True))


def sum_over_cp_mean_over_dp(grad):
    """The loss is multiplied by cp in the loss function: a mean over dp and cp of it is divided by dp alone there."""
    grad *= parallel_state.get_context_parallel_world_size()
    grad /= parallel_state.get_data_parallel_world_size(with_context_parallel=True)
    dist.all_reduce(grad, group=parallel_state.get_data_parallel_group(with_context_parallel=True))
