import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.distributed.device_mesh import init_device_mesh


def neighbours(n):
    """The group of n ranks that this rank is in; every rank is in one."""
    mine = None
    for start in range(0, dist.get_world_size(), n):
        ranks = list(range(start, start + n))
        g = dist.new_group(ranks)
        if dist.get_rank() in ranks:
            mine = g
    return mine


def sync(model, pair, mesh):
    for p in model.parameters():
        if getattr(p, "kv_shared", False):
            dist.all_reduce(p.grad, group=pair)
        dist.all_reduce(p.grad, op=dist.ReduceOp.AVG, group=mesh.get_group("dp"))


def main(model):
    mesh = init_device_mesh("cuda", (dist.get_world_size() // 4, 4), mesh_dim_names=("dp", "tp"))
    pair = neighbours(2)
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    gen = torch.Generator().manual_seed(mesh.get_local_rank("dp"))
    for _ in range(100):
        x, y = torch.randn(4, 8, generator=gen).cuda(), torch.randn(4, 8, generator=gen).cuda()
        loss = F.mse_loss(model(x), y)
        opt.zero_grad()
        loss.backward()
        sync(model, pair, mesh)
        opt.step()


if __name__ == "__main__":
    dist.init_process_group("nccl")
    main(nn.Linear(8, 8).cuda())
