# thread: https://github.com/pytorch/pytorch/pull/190583
"""Differentiable collectives for process groups and a cross-modal model that uses them."""
import torch
import torch.distributed as dist
from torch import nn
from torch.autograd import Function


class _Reduce(Function):
    @staticmethod
    def forward(ctx, src, op, group, tensor):
        ctx.src = src
        ctx.group = group
        tensor = tensor.clone(memory_format=torch.contiguous_format)
        dist.reduce(tensor, src, op=op, group=group)
        return tensor

    @staticmethod
    def backward(ctx, grad_output):
        return None, None, None, _Broadcast.apply(ctx.src, ctx.group, grad_output)


class _Broadcast(Function):
    @staticmethod
    def forward(ctx, src, group, tensor):
        ctx.src = src
        ctx.group = group
        ctx.rank = dist.get_rank()
        # torch.distributed makes all the calls in place
        # we allocate new tensors to avoid this
        tensor = tensor.clone(memory_format=torch.contiguous_format)
        dist.broadcast(tensor, src, group=group)
        return tensor

    @staticmethod
    def backward(ctx, grad_output):
        gx = _Reduce.apply(ctx.src, dist.ReduceOp.SUM, ctx.group, grad_output)
        if ctx.src != ctx.rank:
            gx.zero_()
        return None, None, gx


def broadcast(tensor, src, group=None):
    """Broadcast ``tensor`` from the global rank ``src`` to all ranks of ``group``."""
    group = group if group is not None else dist.group.WORLD
    return _Broadcast.apply(src, group, tensor)


def reduce(tensor, dst, op=dist.ReduceOp.SUM, group=None):
    group = group if group is not None else dist.group.WORLD
    return _Reduce.apply(dst, op, group, tensor)


class ReplicaGroups:
    """Splits the world into groups of ``size`` consecutive ranks."""

    def __init__(self, size):
        world = dist.get_world_size()
        assert world % size == 0
        self.ranks, self.group = None, None
        for start in range(0, world, size):
            ranks = list(range(start, start + size))
            group = dist.new_group(ranks)
            if dist.get_rank() in ranks:
                self.ranks, self.group = ranks, group

    @property
    def leader(self):
        return self.ranks[0]


class ConditionedDecoder(nn.Module):
    """The leader of a group encodes the prompt once, all ranks of the group decode against it."""

    def __init__(self, vocab_size, width, groups: ReplicaGroups):
        super().__init__()
        self.groups = groups
        self.embed = nn.Embedding(vocab_size, width)
        self.prompt_encoder = nn.TransformerEncoderLayer(width, 8, batch_first=True)
        self.decoder = nn.TransformerDecoderLayer(width, 8, batch_first=True)
        self.head = nn.Linear(width, vocab_size)

    def encode_prompt(self, prompt_ids):
        memory = self.prompt_encoder(self.embed(prompt_ids))
        return broadcast(memory, self.groups.leader, group=self.groups.group)

    def forward(self, prompt_ids, target_ids):
        memory = self.encode_prompt(prompt_ids)
        return self.head(self.decoder(self.embed(target_ids), memory))


def train_step(model, optimizer, batch, groups: ReplicaGroups):
    logits = model(batch["prompt_ids"], batch["input_ids"])
    loss = nn.functional.cross_entropy(logits.flatten(0, 1), batch["labels"].flatten())
    loss.backward()
    for param in model.parameters():
        if param.grad is not None:
            dist.all_reduce(param.grad, group=groups.group)
    optimizer.step()
    optimizer.zero_grad()
    return loss.detach()
