"""Tensor-parallel plan of the embedding and the head with optional loss parallel."""
import contextlib
import torch
import torch.nn.functional as F
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    SequenceParallel,
    loss_parallel,
    parallelize_module,
)


def apply_tp(model, tp_mesh, enable_loss_parallel):
    return parallelize_module(
        model,
        tp_mesh,
        {
            "tok_embeddings": RowwiseParallel(input_layouts=Replicate(), output_layouts=Shard(1)),
            "norm": SequenceParallel(),
            "output": ColwiseParallel(
                input_layouts=Shard(1),
                output_layouts=Shard(-1) if enable_loss_parallel else Replicate(),
                use_local_output=not enable_loss_parallel,
            ),
        },
    )


def train_step(model, input_ids, labels, enable_loss_parallel):
    ctx = loss_parallel() if enable_loss_parallel else contextlib.nullcontext()
    with ctx:
        pred = model(input_ids)
        loss = F.cross_entropy(pred.flatten(0, 1).float(), labels.flatten(0, 1))
        loss.backward()
    return loss
