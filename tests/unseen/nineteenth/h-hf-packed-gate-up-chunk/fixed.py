"""Shard the MLP of a Phi-3-like checkpoint (written from memory of transformers' packed colwise loading)."""
import torch
import torch.distributed as dist
from megatron.core.tensor_parallel import (
    copy_to_tensor_model_parallel_region,
    reduce_from_tensor_model_parallel_region,
)


def shard_dim(weight, dim, rank, world_size):
    return weight.chunk(world_size, dim=dim)[rank].contiguous()


class Phi3MLP(torch.nn.Module):
    def __init__(self, gate_up, down):
        super().__init__()
        self.gate_up_proj = torch.nn.Parameter(gate_up)  # [2 * inter / tp, hidden]
        self.down_proj = torch.nn.Parameter(down)  # [hidden, inter / tp]

    def forward(self, x):
        # x: the same on every tensor-parallel rank
        x = copy_to_tensor_model_parallel_region(x)
        gate, up = torch.nn.functional.linear(x, self.gate_up_proj).chunk(2, dim=-1)
        out = torch.nn.functional.linear(torch.nn.functional.silu(gate) * up, self.down_proj)
        return reduce_from_tensor_model_parallel_region(out)


def load_mlp(state_dict, prefix, tp_group):
    """state_dict: the unsharded checkpoint; gate_up_proj is gate stacked on up."""
    rank, world_size = dist.get_rank(tp_group), dist.get_world_size(tp_group)
    gate_up = state_dict[f"{prefix}.gate_up_proj.weight"]  # [2 * inter, hidden]
    down = state_dict[f"{prefix}.down_proj.weight"]  # [hidden, inter]
    gate, up = gate_up.chunk(2, dim=0)
    gate_up_shard = torch.cat(
        [shard_dim(gate, 0, rank, world_size), shard_dim(up, 0, rank, world_size)], dim=0
    )
    down_shard = shard_dim(down, 1, rank, world_size)
    return Phi3MLP(gate_up_shard, down_shard)
