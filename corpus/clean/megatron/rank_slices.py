"""Each rank takes its own part by index: of a replicated tensor, of ids, of a state that has no gradient, and sums what it computed."""

# spmd: mesh dense = dp, tp
import torch
import torch.nn.functional as F
from megatron.core import parallel_state
from megatron.core.tensor_parallel import reduce_from_tensor_model_parallel_region


# spmd: x: {tp: R} -> {tp: V}
def own_rows(x):
    rank = parallel_state.get_tensor_model_parallel_rank()
    size = parallel_state.get_tensor_model_parallel_world_size()
    per_rank = x.shape[0] // size
    return x[rank * per_rank : (rank + 1) * per_rank]


# spmd: x: {tp: R} -> {tp: V}
def own_columns(x):
    size = parallel_state.get_tensor_model_parallel_world_size()
    return torch.chunk(x, size, dim=-1)[parallel_state.get_tensor_model_parallel_rank()].contiguous()


# spmd: x: {tp: R} -> {tp: V}
def own_heads(x, heads_per_rank: int):
    first = parallel_state.get_tensor_model_parallel_rank() * heads_per_rank
    return x.narrow(2, first, heads_per_rank)


# spmd: state: {tp: R} -> {tp: R}
@torch.no_grad()
def split_norm(state):
    """The work is divided: every rank squares its own rows, the sum is over all of them."""
    total = own_rows(state).float().square().sum()
    torch.distributed.all_reduce(total, group=parallel_state.get_tensor_model_parallel_group())
    return total.sqrt()


# spmd: x: {tp: R}, expert_weights: {tp: S(0)} -> {tp: I}
def experts(x, scores, expert_weights, experts_per_rank: int):
    """Every rank runs its own experts on all tokens; the outputs are summed."""
    rank = parallel_state.get_tensor_model_parallel_rank()
    first = rank * experts_per_rank
    mine = scores[:, first : first + experts_per_rank]
    outputs = [F.linear(F.gelu(x), weight) * mine[:, i : i + 1] for i, weight in enumerate(expert_weights)]
    return reduce_from_tensor_model_parallel_region(torch.stack(outputs).sum(dim=0))


# spmd: x: {tp: R}, bias: {tp: R} -> {tp: I}
def owner_adds(x, bias):
    """Only the first rank has something to add, the others have zeros of the same shape."""
    mine = own_rows(x).sum(dim=0)
    if parallel_state.get_tensor_model_parallel_rank() == 0:
        mine = mine + bias
    return reduce_from_tensor_model_parallel_region(mine)
