"""divided by dp before the sum and by cp behind it."""
import torch.distributed as dist
from megatron.core import parallel_state


def average(grads):
    group = parallel_state.get_data_parallel_group(with_context_parallel=True)
    for grad in grads:
        grad.div_(parallel_state.get_data_parallel_world_size())
        dist.all_reduce(grad, group=group)
        grad.div_(parallel_state.get_context_parallel_world_size())
