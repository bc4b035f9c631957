# thread: https://github.com/NVIDIA/Megatron-LM/pull/7186
"""Hybrid fully sharded data parallel: parameters sharded within a node, replicated between nodes."""
from contextlib import contextmanager, nullcontext

import torch
import torch.distributed as dist
from torch import nn


class MicrobatchContext:
    def __init__(self):
        self.is_last_microbatch = True

    @contextmanager
    def microbatch(self, is_last: bool):
        previous, self.is_last_microbatch = self.is_last_microbatch, is_last
        try:
            yield
        finally:
            self.is_last_microbatch = previous


class ParamShard:
    """Shard of one parameter within the inner group, with a buffer for the gradients of a step."""

    def __init__(self, param: nn.Parameter, inner_group):
        self.param = param
        self.inner_group = inner_group
        world = dist.get_world_size(inner_group)
        self.numel = -(-param.numel() // world)
        self.world = world
        self.partial = None
        self.main_grad = torch.zeros(self.numel, device=param.device)

    def reduce_scatter(self):
        flat = self.param.grad.float().reshape(-1)
        flat = torch.cat([flat, flat.new_zeros(self.numel * self.world - flat.numel())])
        out = torch.empty(self.numel, device=flat.device)
        dist.reduce_scatter_tensor(out, flat, group=self.inner_group)
        self.partial = out if self.partial is None else self.partial + out
        self.param.grad = None


def reduce_partial_gradients(shards, outer_group, dp_world_size, *, is_last_microbatch):
    """Between nodes the gradients are reduced once, behind the last micro batch."""
    if not is_last_microbatch:
        return
    for shard in shards:
        if shard.partial is None:
            continue
        shard.main_grad.copy_(shard.partial)
        shard.main_grad.div_(dp_world_size)
        dist.all_reduce(shard.main_grad, group=outer_group)
        shard.partial = None


class FullyShardedDataParallelBase(nn.Module):
    def __init__(self, config, module):
        super().__init__()
        self.config = config
        self.module = module

    def forward(self, *args, **kwargs):
        return self.module(*args, **kwargs)

    def no_sync(self):
        return nullcontext()


class FullyShardedDataParallelV2(FullyShardedDataParallelBase):
    def __init__(self, config, module, inner_group, outer_group):
        super().__init__(config, module)
        self.context = MicrobatchContext()
        self.outer_group = outer_group
        self.dp_world_size = dist.get_world_size(inner_group) * dist.get_world_size(outer_group)
        self.shards = [ParamShard(p, inner_group) for p in module.parameters() if p.requires_grad]

    def no_sync(self):
        return self.context.microbatch(is_last=False)

    def backward_epilogue(self):
        for shard in self.shards:
            if shard.param.grad is not None:
                shard.reduce_scatter()
        reduce_partial_gradients(
            self.shards,
            self.outer_group,
            self.dp_world_size,
            is_last_microbatch=self.context.is_last_microbatch,
        )


def forward_backward_no_pipelining(model: FullyShardedDataParallelV2, loss_func, microbatches):
    losses = []

    def run(batch):
        loss = loss_func(model(batch["tokens"]), batch["labels"])
        (loss / len(microbatches)).backward()
        model.backward_epilogue()
        losses.append(loss.detach())

    with model.no_sync():
        for batch in microbatches[:-1]:
            run(batch)
    run(microbatches[-1])
    return torch.stack(losses).mean()


def train_step(model: FullyShardedDataParallelV2, optimizer, loss_func, microbatches):
    loss = forward_backward_no_pipelining(model, loss_func, microbatches)
    optimizer.step([shard.main_grad for shard in model.shards])
    return loss
