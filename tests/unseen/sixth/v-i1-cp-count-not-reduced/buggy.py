"""Masked loss with context parallelism."""
import torch
from megatron.core import parallel_state


def loss_func(loss_mask, output_tensor):
    # output_tensor, loss_mask: the tokens of this context-parallel rank
    losses = output_tensor.float()
    loss_mask = loss_mask.view(-1).float()
    total = torch.sum(losses.view(-1) * loss_mask)
    total = torch.distributed.nn.functional.all_reduce(total, group=parallel_state.get_context_parallel_group())
    return total / loss_mask.sum()  # BUG: the count of one context-parallel rank
