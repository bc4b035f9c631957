import os
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def save(model, mesh, path):
    if mesh["dp"].get_local_rank() == 0:
        full = {}
        for name, t in model.state_dict().items():
            full[name] = (t.full_tensor() if isinstance(t, DTensor) else t).cpu()
        if mesh["tp"].get_local_rank() == 0:
            torch.save(full, path)
    dist.barrier()


def main():
    dist.init_process_group("nccl")
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    mesh = init_device_mesh("cuda", (dist.get_world_size() // 2, 2), mesh_dim_names=("dp", "tp"))
    torch.manual_seed(0)
    ds = TensorDataset(torch.randn(4000, 20), torch.randint(0, 4, (4000,)))
    model = nn.Sequential(nn.Linear(20, 80), nn.ReLU(), nn.Linear(80, 4)).cuda()
    parallelize_module(model, mesh["tp"], {"0": ColwiseParallel(), "2": RowwiseParallel()})
    opt = torch.optim.Adam(model.parameters(), lr=1e-3)
    sampler = DistributedSampler(ds, num_replicas=mesh["dp"].size(), rank=mesh["dp"].get_local_rank())
    for epoch in range(5):
        sampler.set_epoch(epoch)
        for x, y in DataLoader(ds, batch_size=40, sampler=sampler):
            opt.zero_grad()
            nn.functional.cross_entropy(model(x.cuda()), y.cuda()).backward()
            for p in model.parameters():
                g = p.grad.to_local()
                dist.all_reduce(g, group=mesh["dp"].get_group())
                g /= mesh["dp"].size()
            opt.step()
        save(model, mesh, f"epoch{epoch}.pt")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
