"""FSDP over a model whose adapter is added after wrapping."""
import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def build(model, adapter, optimizer_cls):
    model.adapter = adapter
    model = FSDP(model)
    optimizer = optimizer_cls(model.parameters())
    return model, optimizer


def step(model, batch, optimizer):
    model(**batch).loss.backward()
    optimizer.step()
