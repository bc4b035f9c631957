from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, SequenceParallel, parallelize_module


def parallelize(model, mesh):
    """The rotary table's embedder gives a whole table, of which the attention takes what it needs; words come by parts."""
    plan = {
        "words": RowwiseParallel(input_layouts=Replicate(), output_layouts=Shard(1)),
        "time_embed": RowwiseParallel(input_layouts=Replicate()),
        "norm": SequenceParallel(),
        "wq": ColwiseParallel(input_layouts=Shard(1)),
        "wo": RowwiseParallel(output_layouts=Shard(1)),
    }
    return parallelize_module(model, mesh, plan)
