"""Distributed optimizer state over bucketed buffers, saved in a layout-independent form."""
import math
from dataclasses import dataclass, field

import torch
import torch.distributed as dist


@dataclass
class Bucket:
    start: int
    numel_unpadded: int
    numel: int


@dataclass
class ParamBuffer:
    buckets: list = field(default_factory=list)
    param_index_map: dict = field(default_factory=dict)

    @property
    def numel_unpadded(self):
        return sum(b.numel_unpadded for b in self.buckets)


def build_buffer(named_params, bucket_size, dp_size):
    buffer, offset, bucket_start = ParamBuffer(), 0, 0

    def close_bucket(end):
        unpadded = end - bucket_start
        padded = math.ceil(unpadded / dp_size) * dp_size
        buffer.buckets.append(Bucket(bucket_start, unpadded, padded))
        return bucket_start + padded

    for name, p in named_params:
        buffer.param_index_map[name] = (offset, offset + p.numel(), len(buffer.buckets))
        offset += p.numel()
        if offset - bucket_start >= bucket_size:
            offset = bucket_start = close_bucket(offset)
    if offset > bucket_start:
        close_bucket(offset)
    return buffer


class DistributedOptimizer:
    """Adam; every data-parallel rank keeps the state of one slice of each bucket."""

    def __init__(self, model, lr, dp_group, bucket_size=40_000_000, betas=(0.9, 0.95), eps=1e-8):
        self.named_params = list(model.named_parameters())
        self.lr, self.betas, self.eps, self.dp_group = lr, betas, eps, dp_group
        self.dp_size, self.dp_rank = dist.get_world_size(dp_group), dist.get_rank(dp_group)
        self.buffer = build_buffer(self.named_params, bucket_size, self.dp_size)
        self.state = [
            {k: torch.zeros(b.numel // self.dp_size, device="cuda") for k in ("exp_avg", "exp_avg_sq")}
            for b in self.buffer.buckets
        ]
        self.steps = 0

    def _flatten(self, get):
        flat = [torch.zeros(b.numel, device="cuda") for b in self.buffer.buckets]
        for name, p in self.named_params:
            start, end, i = self.buffer.param_index_map[name]
            base = self.buffer.buckets[i].start
            flat[i][start - base:end - base] = get(p).detach().float().flatten()
        return flat

    @torch.no_grad()
    def step(self):
        self.steps += 1
        grads, weights = self._flatten(lambda p: p.grad), self._flatten(lambda p: p)
        for grad, weight, state in zip(grads, weights, self.state):
            g = torch.empty_like(state["exp_avg"])
            dist.reduce_scatter_tensor(g, grad / self.dp_size, group=self.dp_group)
            shard = weight.chunk(self.dp_size)[self.dp_rank]
            state["exp_avg"].lerp_(g, 1 - self.betas[0])
            state["exp_avg_sq"].lerp_(g * g, 1 - self.betas[1])
            m = state["exp_avg"] / (1 - self.betas[0] ** self.steps)
            v = state["exp_avg_sq"] / (1 - self.betas[1] ** self.steps)
            shard = shard - self.lr * m / (v.sqrt() + self.eps)
            dist.all_gather_into_tensor(weight, shard, group=self.dp_group)
        for name, p in self.named_params:
            start, end, i = self.buffer.param_index_map[name]
            base = self.buffer.buckets[i].start
            p.copy_(weights[i][start - base:end - base].view_as(p))

    def get_parameter_state(self):
        """All buckets one after the other, with the padding at their ends taken off."""
        world = {k: torch.empty(self.buffer.numel_unpadded) for k in ("exp_avg", "exp_avg_sq")}
        offset = 0
        for bucket, state in zip(self.buffer.buckets, self.state):
            for key, shard in state.items():
                full = torch.empty(bucket.numel, device="cuda")
                dist.all_gather_into_tensor(full, shard, group=self.dp_group)
                world[key][offset:offset + bucket.numel_unpadded] = full[:bucket.numel_unpadded].cpu()
            offset += bucket.numel_unpadded
        return world

    def sharded_param_state_fully_reshardable(self):
        world = self.get_parameter_state()
        out = {}
        for name, p in self.named_params:
            start, end, bucket_index = self.buffer.param_index_map[name]
            entry = {}
            for key, tensor in world.items():
                piece = tensor[start:end]  # BUG
                entry[key] = torch.nn.functional.pad(piece, (0, p.numel() - piece.numel())).view(p.shape)
            out[name] = entry
        return {"state": out, "step": self.steps}

    def save(self, path):
        state = self.sharded_param_state_fully_reshardable()
        if self.dp_rank == 0:
            torch.save(state, path)
        dist.barrier(group=self.dp_group)
