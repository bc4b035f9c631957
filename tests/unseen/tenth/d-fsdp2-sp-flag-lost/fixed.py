"""Sequence-parallel norms under FSDP2: flag the weights, reduce flagged gradients over tp."""
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard


def mark_sequence_parallel_norms(model):
    for module in model.modules():
        if isinstance(module, (nn.LayerNorm, nn.RMSNorm)):
            for param in module.parameters(recurse=False):
                param.sequence_parallel = True


def allreduce_sequence_parallel_grads(model, tp_group):
    for param in model.parameters():
        if getattr(param, "sequence_parallel", False) and param.grad is not None:
            dist.all_reduce(param.grad.to_local(), group=tp_group)


def setup(model, mesh):
    for layer in model.layers:
        fully_shard(layer, mesh=mesh["dp"])
    fully_shard(model, mesh=mesh["dp"])
    mark_sequence_parallel_norms(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, foreach=True)
    return model, optimizer


def train_step(model, optimizer, batch, loss_fn, mesh):
    loss = loss_fn(model(batch["input_ids"]), batch["labels"])
    loss.backward()
    allreduce_sequence_parallel_grads(model, mesh["tp"].get_group())
    optimizer.step()
    optimizer.zero_grad()
    return loss.detach()
