"""Norms under sequence parallelism: marked when they are made, their gradients are summed by hooks over the tensor group."""

import torch
import torch.distributed as dist
from internlm.core.context import IS_REPLICA_ZERO_PARALLEL, IS_SEQUENCE_PARALLEL, ParallelMode
from internlm.core.context import global_context as gpc
from torch import nn


def is_using_sequence_parallel():
    return isinstance(gpc.config.parallel["tensor"], dict) and gpc.config.parallel["tensor"].get("mode") != "mtp"


class Block(nn.Module):
    def __init__(self, hidden_size, mixer, mlp, norm_cls, dropout=0.0):
        super().__init__()
        self.mixer, self.mlp = mixer, mlp
        self.attention_norm = norm_cls(hidden_size)
        self.ffn_norm = norm_cls(hidden_size)
        self.dropout1, self.dropout2 = nn.Dropout(dropout), nn.Dropout(dropout)
        for norm in (self.attention_norm, self.ffn_norm):
            for param in norm.parameters():
                setattr(param, IS_REPLICA_ZERO_PARALLEL, True)
                if is_using_sequence_parallel():
                    setattr(param, IS_SEQUENCE_PARALLEL, True)

    def forward(self, hidden_states, **kwargs):
        # hidden_states: sequence shard of this tensor rank
        hidden_states = hidden_states + self.dropout1(self.mixer(self.attention_norm(hidden_states), **kwargs))
        return hidden_states + self.dropout2(self.mlp(self.ffn_norm(hidden_states)))


class SequenceParallelHooks:
    def __init__(self):
        self.handles = []

    def attach(self, model):
        for param in model.parameters():
            if param.requires_grad and getattr(param, IS_SEQUENCE_PARALLEL, False):
                param.register_post_accumulate_grad_hook(self._reduce)

    def _reduce(self, param):
        group = gpc.get_group(ParallelMode.TENSOR)
        self.handles.append(dist.all_reduce(param.grad, group=group, async_op=True))

    def wait(self):
        for handle in self.handles:
            handle.wait()
        self.handles = []


def train_one_batch(model, hooks, optimizer, batch, criterion):
    loss = criterion(model(**batch["input"]), batch["label"])
    loss.backward()
    hooks.wait()
    for param in model.parameters():
        if param.grad is not None:
            dist.all_reduce(param.grad, op=dist.ReduceOp.AVG, group=gpc.get_group(ParallelMode.DATA))
    optimizer.step()
    optimizer.zero_grad()
    return loss.detach()
