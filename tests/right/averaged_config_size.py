from megatron.core import tensor_parallel


def restore(x, config):
    whole = tensor_parallel.gather_from_tensor_model_parallel_region(x)
    whole /= config.tensor_model_parallel_size
    return tensor_parallel.reduce_scatter_to_sequence_parallel_region(whole)


def restore2(x, config):
    whole = tensor_parallel.all_gather_last_dim_from_tensor_parallel_region(x)
    whole = whole / config.tensor_model_parallel_size
    return tensor_parallel.reduce_scatter_last_dim_to_tensor_parallel_region(whole)
