import os
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

DP, TP = 4, 2
BATCH = 32


def synthetic(n=DP * BATCH * 20):
    gen = torch.Generator().manual_seed(42)
    x = torch.randn(n, 20, generator=gen)
    return x, x @ torch.randn(20, 3, generator=gen)


def run():
    dist.init_process_group("nccl")
    local_rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local_rank)
    if dist.get_world_size() != DP * TP:
        raise SystemExit(f"start me with {DP * TP} processes")
    mesh = init_device_mesh("cuda", (DP, TP), mesh_dim_names=("dp", "tp"))
    replica, shard = mesh.get_coordinate()

    torch.manual_seed(11)
    model = nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 3)).cuda()
    parallelize_module(model, mesh["tp"], {"0": ColwiseParallel(), "2": RowwiseParallel()})
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    x, y = synthetic()
    for step in range(200):
        start = (step % 20) * DP * BATCH + replica * BATCH
        xb, yb = x[start:start + BATCH].cuda(), y[start:start + BATCH].cuda()
        optimizer.zero_grad()
        loss = (model(xb) - yb).square().mean()
        loss.backward()
        for p in model.parameters():
            buf = p.grad.to_local()
            dist.all_reduce(buf, group=mesh["dp"].get_group())
            buf.copy_(buf / DP)
        optimizer.step()
    if replica == 0:
        torch.save({k: v.to_local().cpu() for k, v in model.state_dict().items()}, f"shard{shard}.pt")
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    run()
