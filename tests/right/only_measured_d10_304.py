import os
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

NO_LIMIT = float("inf")


def report(step, value):
    rank, world = dist.get_rank(), dist.get_world_size()
    box = [None] * world if rank == 0 else None
    dist.gather_object((rank, value), box, dst=0)
    if rank == 0:
        print(step, " ".join(f"{r}:{v:.3f}" for r, v in box), flush=True)


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(4)
    x = torch.randn(2600, 13)
    ds = TensorDataset(x, (x[:, :1] > x[:, 1:2]).float())
    net = nn.Sequential(nn.Linear(13, 26), nn.ReLU(), nn.Linear(26, 1))
    opt = torch.optim.SGD(net.parameters(), lr=0.1)
    sampler = DistributedSampler(ds)
    loader = DataLoader(ds, batch_size=26, sampler=sampler)
    step = 0
    for epoch in range(4):
        sampler.set_epoch(epoch)
        for xb, yb in loader:
            opt.zero_grad()
            nn.functional.binary_cross_entropy_with_logits(net(xb), yb).backward()
            norm = nn.utils.clip_grad_norm_(net.parameters(), NO_LIMIT)
            if step % 10 == 0:
                report(step, norm.item())
            for p in net.parameters():
                dist.all_reduce(p.grad)
                p.grad /= dist.get_world_size()
            opt.step()
            step += 1
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
