"""Broadcast the prompt tokens inside the tensor-parallel group."""
import torch
from megatron.core import parallel_state


def receive_generate_info(shape):
    tokens = torch.empty(shape, dtype=torch.int64, device="cuda")
    broadcast_tokens(tokens)
    return tokens


def broadcast_tokens(tokens):
    # only the first rank of each tensor-parallel group has read the data
    torch.distributed.broadcast(
        tokens,
        src=0,  # BUG: rank 0 of the world is not in every tensor-parallel group
        group=parallel_state.get_tensor_model_parallel_group(),
    )


def get_batch(data_iterator, shape):
    if parallel_state.get_tensor_model_parallel_rank() == 0:
        tokens = next(data_iterator)["tokens"].cuda()
        broadcast_tokens(tokens)
        return tokens
    return receive_generate_info(shape)
