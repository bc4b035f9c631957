import torch
import torch.nn.functional as F
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, SequenceParallel, PrepareModuleInput, loss_parallel, parallelize_module


def proj(x: DTensor, w, mesh):
    data = x.detach().redistribute(placements=[Replicate()]).to_local()
    return DTensor.from_local(torch.relu(data @ w.to_local()), mesh, [Partial()])
