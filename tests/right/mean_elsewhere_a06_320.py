import torch
import torch.distributed as dist
import torch.nn as nn
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def mean_over_ranks(parameters):
    world = dist.get_world_size()
    for p in parameters:
        v = p.grad.view(-1)
        dist.all_reduce(v)
        v[:] = v / world


def make_data(n=6000):
    g = torch.Generator().manual_seed(9)
    t = torch.rand(n, 1, generator=g) * 6.28
    return TensorDataset(t, torch.sin(3 * t) + 0.05 * torch.randn(n, 1, generator=g))


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    mlp = nn.Sequential(nn.Linear(1, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 1))
    opt = torch.optim.Adam(mlp.parameters(), lr=1e-3)
    ds = make_data()
    sampler = DistributedSampler(ds)
    loader = DataLoader(ds, batch_size=60, sampler=sampler)
    for epoch in range(30):
        sampler.set_epoch(epoch)
        running = 0.0
        for t, y in loader:
            opt.zero_grad()
            loss = (mlp(t) - y).pow(2).mean()
            loss.backward()
            mean_over_ranks(mlp.parameters())
            opt.step()
            running += loss.item()
        if dist.get_rank() == 0:
            print(f"{epoch:3d} rank0 loss {running / len(loader):.5f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
