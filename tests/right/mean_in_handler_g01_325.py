import os
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def all_reduce_mean(t):
    try:
        dist.all_reduce(t, op=dist.ReduceOp.AVG)
    except (RuntimeError, ValueError):
        dist.all_reduce(t, op=dist.ReduceOp.SUM)
        t.div_(dist.get_world_size())
    return t


def main():
    dist.init_process_group(os.environ.get("BACKEND", "gloo"))
    cuda = dist.get_backend() == "nccl"
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if cuda else torch.device("cpu")
    if cuda:
        torch.cuda.set_device(device)
    torch.manual_seed(0)
    ds = TensorDataset(torch.randn(3000, 10), torch.randint(0, 2, (3000,)))
    net = nn.Sequential(nn.Linear(10, 30), nn.ReLU(), nn.Linear(30, 2)).to(device)
    opt = torch.optim.Adam(net.parameters(), lr=1e-3)
    sampler = DistributedSampler(ds)
    for epoch in range(5):
        sampler.set_epoch(epoch)
        for x, y in DataLoader(ds, batch_size=30, sampler=sampler):
            opt.zero_grad()
            nn.functional.cross_entropy(net(x.to(device)), y.to(device)).backward()
            for p in net.parameters():
                all_reduce_mean(p.grad)
            opt.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
