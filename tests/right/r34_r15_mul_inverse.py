from megatron.core.tensor_parallel import reduce_from_tensor_model_parallel_region


def average(x, config):
    whole = reduce_from_tensor_model_parallel_region(x)
    whole = whole * (1.0 / config.tensor_model_parallel_size)
    return reduce_from_tensor_model_parallel_region(whole)
