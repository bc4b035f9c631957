"""a value that is the same on the tp ranks is averaged over them (a divisor before the sum); logging."""
import torch
from megatron.core import parallel_state
from megatron.core.tensor_parallel import reduce_from_tensor_model_parallel_region


@torch.no_grad()
def report(hidden):
    norm = reduce_from_tensor_model_parallel_region(hidden).norm()
    size = parallel_state.get_tensor_model_parallel_world_size()
    norm = norm / size
    norm = reduce_from_tensor_model_parallel_region(norm)
    return norm.item()
