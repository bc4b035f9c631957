import torch.nn as nn
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import ColwiseParallel, PrepareModuleOutput, RowwiseParallel, SequenceParallel, parallelize_module


def apply_tp(model, mesh):
    """`embedder` holds the table and dropout; its output is split."""
    plan = {
        "embedder": PrepareModuleOutput(output_layouts=Replicate(), desired_output_layouts=Shard(1)),
        "embedder.table": RowwiseParallel(input_layouts=Replicate()),
        "norm": SequenceParallel(),
        "up": ColwiseParallel(input_layouts=Shard(1)),
        "down": RowwiseParallel(output_layouts=Shard(1)),
    }
    return parallelize_module(model, mesh, plan)
