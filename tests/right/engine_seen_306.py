from megatron.core import parallel_state


def engine(Engine, model):
    """The engine divides batches over what it calls data ranks; without data parallelism these are the context ranks."""
    assert parallel_state.get_data_parallel_world_size() == 1
    return Engine(model, data_parallel_group=parallel_state.get_context_parallel_group())
