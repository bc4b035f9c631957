import math
from megatron.core.tensor_parallel import reduce_from_tensor_model_parallel_region


def average(x, config):
    root = math.sqrt(config.tensor_model_parallel_size)
    whole = reduce_from_tensor_model_parallel_region(x)
    whole = whole / root / root
    return reduce_from_tensor_model_parallel_region(whole)
