import torch.nn as nn
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import ColwiseParallel, PrepareModuleInput, RowwiseParallel, SequenceParallel, parallelize_module


def shard_dit(model, mesh):
    """t_embedder gives one vector for each sample: it has no sequence, and is added to all positions."""
    plan = {
        "t_embedder.mlp1": ColwiseParallel(),
        "t_embedder.mlp2": RowwiseParallel(),
        "label_embed": RowwiseParallel(input_layouts=Replicate()),
        "x_proj": ColwiseParallel(output_layouts=Shard(1)),
        "norm": SequenceParallel(),
        "fc1": ColwiseParallel(input_layouts=Shard(1)),
        "fc2": RowwiseParallel(output_layouts=Shard(1)),
    }
    return parallelize_module(model, mesh, plan)
