"""the loss function divides by cp, the gradients are divided by dp: together by both."""
import torch.distributed as dist
from megatron.core import parallel_state


def loss_func(losses, mask):
    return (losses * mask).sum() / mask.sum() / parallel_state.get_context_parallel_world_size()


def average(grad):
    grad /= parallel_state.get_data_parallel_world_size()
    dist.all_reduce(grad, group=parallel_state.get_data_parallel_group(with_context_parallel=True))
