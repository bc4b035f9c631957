"""Gradient engine for data parallelism with sequence parallel groups inside."""
import dataclasses

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch._utils import _flatten_dense_tensors, _unflatten_dense_tensors


@dataclasses.dataclass
class Topology:
    dp: dist.ProcessGroup
    sp: dist.ProcessGroup
    seq_dp: dist.ProcessGroup  # all ranks of dp x sp

    @classmethod
    def create(cls, sp_size):
        world, rank = dist.get_world_size(), dist.get_rank()
        found = {}
        for start in range(0, world, sp_size):
            ranks = list(range(start, start + sp_size))
            group = dist.new_group(ranks)
            if rank in ranks:
                found["sp"] = group
        for offset in range(sp_size):
            ranks = list(range(offset, world, sp_size))
            group = dist.new_group(ranks)
            if rank in ranks:
                found["dp"] = group
        return cls(seq_dp=dist.group.WORLD, **found)


def buckets(tensors, limit):
    current, size = [], 0
    for tensor in tensors:
        if current and size + tensor.numel() > limit:
            yield current
            current, size = [], 0
        current.append(tensor)
        size += tensor.numel()
    if current:
        yield current


class Engine:
    def __init__(self, model, optimizer, topology, bucket_elements=50_000_000):
        self.model, self.optimizer, self.topology = model, optimizer, topology
        self.bucket_elements = bucket_elements
        self.params = [p for p in model.parameters() if p.requires_grad]
        for tensor in [*model.parameters(), *model.buffers()]:
            dist.broadcast(tensor.data, src=0)

    def backward(self, loss):
        loss.backward()

    @torch.no_grad()
    def allreduce_gradients(self):
        grads = [p.grad for p in self.params if p.grad is not None]
        divisor = self.topology.seq_dp.size()  # BUG
        for bucket in buckets(grads, self.bucket_elements):
            flat = _flatten_dense_tensors(bucket)
            flat.div_(divisor)
            dist.all_reduce(flat, group=self.topology.seq_dp)
            for grad, reduced in zip(bucket, _unflatten_dense_tensors(flat, bucket)):
                grad.copy_(reduced)

    def step(self):
        self.allreduce_gradients()
        torch.nn.utils.clip_grad_norm_(self.params, 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)


class SequenceParallelLoss:
    """The local shard's part of the mean loss of a micro batch; batches are packed to one length."""

    def __init__(self, topology):
        self.topology = topology

    def __call__(self, logits, targets):
        total = F.cross_entropy(logits.flatten(0, 1).float(), targets.flatten(), reduction="sum")
        return total / (targets.numel() * self.topology.sp.size())


def train(engine, loader, schedule):
    topology = engine.topology
    criterion = SequenceParallelLoss(topology)
    for tokens, targets in loader:
        size, rank = topology.sp.size(), topology.sp.rank()
        tokens, targets = (t.cuda().chunk(size, dim=1)[rank] for t in (tokens, targets))
        loss = criterion(engine.model(tokens), targets)
        engine.backward(loss)
        engine.step()
        schedule.step()
        report = loss.detach() / topology.dp.size()
        dist.all_reduce(report, group=topology.seq_dp)
        if dist.get_rank() == 0:
            print(f"loss {report.item():.4f}")
