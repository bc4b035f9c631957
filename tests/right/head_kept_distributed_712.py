"""The head's logits stay distributed where the loss is parallel, and are whole where it is not."""

import contextlib

import torch.nn.functional as F
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, loss_parallel, parallelize_module


def apply_tp(model, tp_mesh, parallel_loss):
    plan = {
        "tok_embeddings": RowwiseParallel(input_layouts=Replicate(), output_layouts=Shard(1)),
        "output": ColwiseParallel(
            input_layouts=Shard(1),
            output_layouts=Shard(-1) if parallel_loss else Replicate(),
            use_local_output=not parallel_loss,
        ),
    }
    return parallelize_module(model, tp_mesh, plan)


def train_step(model, input_ids, labels, parallel_loss):
    with loss_parallel() if parallel_loss else contextlib.nullcontext():
        loss = F.cross_entropy(model(input_ids).flatten(0, 1), labels.flatten())
        loss.backward()
    return loss
