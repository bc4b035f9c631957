import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, SequenceParallel, loss_parallel, parallelize_module

mesh = init_device_mesh("cuda", (8,), mesh_dim_names=("tp",))


class Block(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.gate = nn.Linear(d, d)
        self.norm = nn.LayerNorm(d)
        self.fc1 = nn.Linear(d, 4 * d)
        self.fc2 = nn.Linear(4 * d, d)

    def forward(self, x, c):
        # x: [b, s/tp, d]; c: [b, d], the same on every rank
        return x + self.gate(c).unsqueeze(1) * self.fc2(F.gelu(self.fc1(self.norm(x))))


@torch.inference_mode()
def main():
    block = Block(64)
    parallelize_module(block, mesh, {"gate": ColwiseParallel(output_layouts=Replicate()), "norm": SequenceParallel(), "fc1": ColwiseParallel(input_layouts=Shard(1)), "fc2": RowwiseParallel(output_layouts=Shard(1))})
    return block
