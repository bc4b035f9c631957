"""Token-weighted mean loss with FSDP over data and sequence ranks."""
import torch
import torch.distributed as dist
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def build(model, parallel_state):
    # fsdp_group has dp_size * ulysses_size ranks; gradients are averaged over it
    return FSDP(model, process_group=parallel_state.fsdp_group)


def mean_global_loss(loss, num_tokens, parallel_state):
    # loss: mean over the tokens of this rank
    tokens = num_tokens.clone()
    dist.all_reduce(tokens, group=parallel_state.fsdp_group)
    return loss * num_tokens / tokens * parallel_state.fsdp_size


def train_step(model, batch, parallel_state, optimizer):
    n = (batch["labels"] != -100).sum()
    loss = mean_global_loss(model(**batch).loss, n, parallel_state)
    loss.backward()
    optimizer.step()
