"""Tensor-parallel experts through local_map: gradients of the replicated input are declared a pending sum."""
import torch
import torch.nn.functional as F
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.experimental import local_map


def expert(x, w1, w2, w3):
    h = F.silu(x @ w1.transpose(-2, -1)) * (x @ w3.transpose(-2, -1))
    return h @ w2.transpose(-2, -1)


class Experts(torch.nn.Module):
    def __init__(self, n, dim, ffn, mesh):
        super().__init__()
        self.mesh = mesh
        make = lambda *s: torch.randn(*s) * 0.02
        self.w1 = torch.nn.Parameter(distribute_tensor(make(n, ffn, dim), mesh, [Shard(1)]))
        self.w2 = torch.nn.Parameter(distribute_tensor(make(n, dim, ffn), mesh, [Shard(2)]))
        self.w3 = torch.nn.Parameter(distribute_tensor(make(n, ffn, dim), mesh, [Shard(1)]))
        self.run = local_map(
            expert,
            out_placements=[Partial()],
            in_placements=([Replicate()], [Shard(1)], [Shard(2)], [Shard(1)]),
            in_grad_placements=([Partial()], [Shard(1)], [Shard(2)], [Shard(1)]),
            device_mesh=mesh,
        )

    def forward(self, x):
        out = self.run(x, self.w1, self.w2, self.w3)
        return out.redistribute(placements=[Replicate()])


def main(n, dim, ffn, loader, tp):
    mesh = init_device_mesh("cuda", (tp,), mesh_dim_names=("tp",))
    torch.manual_seed(0)
    model = Experts(n, dim, ffn, mesh)
    optimizer = torch.optim.AdamW(model.parameters())
    for x, y in loader:
        # all ranks of tp read the same batch
        x = DTensor.from_local(x, mesh, [Replicate()], run_check=False)
        y = DTensor.from_local(y, mesh, [Replicate()], run_check=False)
        loss = F.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        print(loss.full_tensor().item())
