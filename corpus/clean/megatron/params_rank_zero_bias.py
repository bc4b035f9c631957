"""Row-parallel projection that adds its bias on one rank, before the sum: the gradient of the bias is on that rank only, and is shared after."""

import torch
import torch.nn.functional as F
from megatron.core.parallel_state import (
    get_tensor_model_parallel_group,
    get_tensor_model_parallel_rank,
    get_tensor_model_parallel_world_size,
)
from megatron.core.tensor_parallel import reduce_from_tensor_model_parallel_region


class RowParallelProjection(torch.nn.Module):
    def __init__(self, input_size, output_size):
        super().__init__()
        self.tp_size = get_tensor_model_parallel_world_size()
        self.is_first = get_tensor_model_parallel_rank() == 0
        self.input_size_per_partition = input_size // self.tp_size
        self.weight = torch.nn.Parameter(torch.empty(output_size, self.input_size_per_partition))
        self.weight.tensor_model_parallel = True
        self.weight.partition_dim = 1
        # Every rank keeps a copy, so that checkpoints do not depend on the rank.
        self.bias = torch.nn.Parameter(torch.zeros(output_size))
        setattr(self.bias, "rank_zero_only", True)

    def forward(self, x):
        # x: the heads of this rank
        out = F.linear(x, self.weight, self.bias if self.is_first else None)
        return reduce_from_tensor_model_parallel_region(out)


def allreduce_rank_zero_grads(model):
    """Ranks other than the first have no gradient for these, which is the same as zero."""
    group = get_tensor_model_parallel_group()
    for param in model.parameters():
        if getattr(param, "rank_zero_only", False) and param.requires_grad:
            if param.grad is None:
                param.grad = torch.zeros_like(param)
            torch.distributed.all_reduce(param.grad, group=group)


def train_step(model, optimizer, batch, loss_fn):
    optimizer.zero_grad(set_to_none=True)
    loss = loss_fn(model(batch["input"]), batch["target"])
    loss.backward()
    allreduce_rank_zero_grads(model)
    optimizer.step()
    return loss.detach()
