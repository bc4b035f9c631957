"""Initialise the tensor-parallel parts of a model on each rank.

Source: modelscope/ms-swift, pull request #7944 (a sibling of InternLM/InternLM #405). The generator
for the sharded weights has the same seed on each tensor rank, so all shards of a weight are
copies of one another and the full weight is a stack of equal blocks.
"""
import torch
import torch.distributed as dist
from megatron.core.tensor_parallel import (
    copy_to_tensor_model_parallel_region,
    reduce_from_tensor_model_parallel_region,
)


class ParallelMLP(torch.nn.Module):
    def __init__(self, hidden, ffn, tp_size, shard_generator, std):
        super().__init__()
        self.w1 = torch.nn.Parameter(torch.empty(ffn // tp_size, hidden))
        self.w2 = torch.nn.Parameter(torch.empty(hidden, ffn // tp_size))
        with torch.no_grad():
            self.w1.normal_(0.0, std, generator=shard_generator)
            self.w2.normal_(0.0, std, generator=shard_generator)

    def forward(self, x):
        x = copy_to_tensor_model_parallel_region(x)
        y = torch.nn.functional.gelu(x @ self.w1.t()) @ self.w2.t()
        return reduce_from_tensor_model_parallel_region(y)


class Block(torch.nn.Module):
    def __init__(self, hidden, ffn, num_experts, tp_size, shard_generator, std):
        super().__init__()
        self.router = torch.nn.Linear(hidden, num_experts, bias=False)  # replicated
        self.experts = torch.nn.ModuleList(
            ParallelMLP(hidden, ffn, tp_size, shard_generator, std) for _ in range(num_experts)
        )

    def forward(self, x):
        weight = torch.softmax(self.router(x), dim=-1)
        return x + sum(weight[..., i:i + 1] * e(x) for i, e in enumerate(self.experts))


def build_model(config, tp_group, seed):
    tp_size, tp_rank = dist.get_world_size(tp_group), dist.get_rank(tp_group)
    torch.manual_seed(seed)
    shard_generator = torch.Generator()
    shard_generator.manual_seed(seed + 2718 + tp_rank)
    blocks = [
        Block(config.hidden, config.ffn, config.num_experts, tp_size, shard_generator, config.std)
        for _ in range(config.num_layers)
    ]
    return torch.nn.Sequential(*blocks), tp_rank
