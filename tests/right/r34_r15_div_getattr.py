from megatron.core.tensor_parallel import reduce_from_tensor_model_parallel_region


def average(x, config):
    size = max(getattr(config, "tensor_model_parallel_size", 1), 1)
    whole = reduce_from_tensor_model_parallel_region(x)
    whole = whole / size
    return reduce_from_tensor_model_parallel_region(whole)
