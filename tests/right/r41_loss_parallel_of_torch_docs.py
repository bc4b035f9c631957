import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, SequenceParallel, loss_parallel, parallelize_module

mesh = init_device_mesh("cuda", (8,), mesh_dim_names=("tp",))


def main():
    logits = distribute_tensor(torch.randn(4, 16, requires_grad=True), mesh, placements=[Shard(1)])
    target = torch.randint(16, (4,), device="cuda")
    with loss_parallel():
        loss = F.cross_entropy(logits, target, reduction="mean")
        loss.backward()
