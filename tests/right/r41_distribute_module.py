import torch.nn as nn
import torch.nn.functional as F
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_module, distribute_tensor
from torch.distributed.tensor.parallel import ColwiseParallel, ParallelStyle, RowwiseParallel, parallelize_module


def rows(name, module, mesh):
    for n, p in list(module.named_parameters(recurse=False)):
        module.register_parameter(n, nn.Parameter(distribute_tensor(p, mesh, [Shard(0)])))


class MLP(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.up = nn.Linear(d, 4 * d)
        self.down = nn.Linear(4 * d, d)

    def forward(self, x):
        return self.down(F.gelu(self.up(x)))


def main(cfg, extra):
    mesh = init_device_mesh("cuda", (8,), mesh_dim_names=("tp",))
    model = MLP(64)
    distribute_module(model.up, mesh, rows, lambda m, i, d: (DTensor.from_local(i[0], d, [Replicate()]),), lambda m, o, d: o.to_local())
    parallelize_module(model, mesh, {"down": RowwiseParallel()})
    return model
