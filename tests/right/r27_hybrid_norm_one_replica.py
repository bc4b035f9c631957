import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard


def shard(net, mesh):
    for layer in net.layers:
        fully_shard(layer, mesh=mesh)
    fully_shard(net, mesh=mesh)


def squares(parameters):
    return sum(p.grad.to_local().square().sum() for p in parameters)


def main(net, loader, nodes, per_node):
    mesh = init_device_mesh("cuda", (1, per_node), mesh_dim_names=("rep", "shd"))
    shard(net, mesh)
    optimizer = torch.optim.AdamW(net.parameters())
    everyone = mesh._flatten("all").get_group()
    for batch in loader:
        net(batch).mean().backward()
        total = squares(net.parameters())
        dist.all_reduce(total, group=everyone)
        for p in net.parameters():
            p.grad.mul_((1.0 / (total.sqrt() + 1e-6)).clamp(max=1.0))
        optimizer.step()
        optimizer.zero_grad()
