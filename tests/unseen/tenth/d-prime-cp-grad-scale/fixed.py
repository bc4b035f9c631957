"""RL trainer step with FSDP over the data- and context-parallel ranks.

PrimeIntellect-ai/prime-rl aba9a5dcd469, src/prime_rl/trainer/rl/train.py
"""
from dataclasses import dataclass

import torch
import torch.distributed as dist
import torch.distributed.nn as dist_nn
from torch.distributed.fsdp import fully_shard


@dataclass
class ParallelDims:
    dp_replicate: int
    dp_shard: int
    cp: int

    @property
    def fsdp_gradient_divide_factor(self) -> int:
        return self.dp_replicate * self.dp_shard * self.cp


def setup_fsdp(model, world_mesh):
    mesh = world_mesh["dp_replicate", "dp_shard_cp"]
    for layer in model.layers:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)


def gather_for_cp(t: torch.Tensor, cp_group: dist.ProcessGroup) -> torch.Tensor:
    gathered_t = dist_nn.all_gather(t, group=cp_group)
    return torch.cat(gathered_t, dim=1)


def train_step(model, optimizer, micro_batches, forward, compute_loss, parallel_dims, dp_group, cp_group):
    """The context-parallel ranks of a data-parallel rank have the same micro batches."""
    dp_world_size = dist.get_world_size(dp_group)
    cp_rank = dist.get_rank(cp_group)

    loss_scale = torch.stack([mb["loss_mask"].sum() for mb in micro_batches]).sum()
    dist.all_reduce(loss_scale, op=dist.ReduceOp.SUM, group=dp_group)

    for micro_batch in micro_batches:
        input_ids = micro_batch["input_ids"].chunk(parallel_dims.cp, dim=1)[cp_rank]
        labels = micro_batch["labels"].chunk(parallel_dims.cp, dim=1)[cp_rank]
        logprobs = forward(model, input_ids, labels)
        logprobs = gather_for_cp(logprobs, cp_group)
        # sum over the tokens of the whole sequence
        loss = compute_loss(logprobs, micro_batch["advantages"], micro_batch["loss_mask"]) / loss_scale
        loss.backward()

    # compute_loss divided by the global token count: recover the sum over the ranks from FSDP's average
    for param in model.parameters():
        if param.grad is not None:
            param.grad.mul_(dp_world_size)

    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()
