# tokens go to context ranks in two chunks; hidden states go to tensor ranks in one run, which is sequence parallelism inside of a part
import torch
import torch.distributed as dist


def two_chunks(x, cp_group, dim=1):
    cp_rank, cp_size = dist.get_rank(cp_group), dist.get_world_size(cp_group)
    chunks = x.chunk(2 * cp_size, dim=dim)
    return torch.cat([chunks[cp_rank], chunks[2 * cp_size - cp_rank - 1]], dim=dim)


def prepare(tokens, position_ids, cp_group):
    return two_chunks(tokens, cp_group), two_chunks(position_ids, cp_group)


def scatter_to_sequence(hidden_states, tp_group):
    tp_rank, tp_size = dist.get_rank(tp_group), dist.get_world_size(tp_group)
    return hidden_states.chunk(tp_size, dim=0)[tp_rank]
