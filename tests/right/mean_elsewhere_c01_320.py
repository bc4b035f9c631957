import os

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def main():
    dist.init_process_group("nccl")
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    world = dist.get_world_size()
    mesh = init_device_mesh("cuda", (world // 2, 2), mesh_dim_names=("dp", "tp"))

    torch.manual_seed(1234)  # same data and same initial weights everywhere
    x = torch.randn(8192, 64)
    dataset = TensorDataset(x, x.pow(2).sum(1, keepdim=True))
    model = nn.Sequential(nn.Linear(64, 256), nn.GELU(), nn.Linear(256, 1)).cuda()
    model = parallelize_module(model, mesh["tp"], {"0": ColwiseParallel(), "2": RowwiseParallel()})

    sampler = DistributedSampler(dataset, num_replicas=world // 2, rank=mesh["dp"].get_local_rank())
    loader = DataLoader(dataset, batch_size=64, sampler=sampler)
    opt = torch.optim.AdamW(model.parameters(), lr=1e-3)
    dp_group = mesh["dp"].get_group()

    for epoch in range(5):
        sampler.set_epoch(epoch)
        for xb, yb in loader:
            opt.zero_grad()
            loss = F.mse_loss(model(xb.cuda()), yb.cuda())
            loss.backward()
            for p in model.parameters():
                g = p.grad.to_local()
                dist.all_reduce(g, group=dp_group)
                g.div_(world // 2)
            opt.step()
        if dist.get_rank() == 0:
            print(f"epoch {epoch} loss {loss.item():.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
