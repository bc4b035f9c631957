import os
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

world = int(os.environ["WORLD_SIZE"])
local_rank = int(os.environ["LOCAL_RANK"])


class AutoEncoder(nn.Module):
    def __init__(self, d=100, k=8):
        super().__init__()
        self.enc = nn.Sequential(nn.Linear(d, 32), nn.ReLU(), nn.Linear(32, k))
        self.dec = nn.Sequential(nn.Linear(k, 32), nn.ReLU(), nn.Linear(32, d))

    def forward(self, x):
        return self.dec(self.enc(x))


def main():
    dist.init_process_group("nccl")
    torch.cuda.set_device(local_rank)
    torch.manual_seed(77)
    basis = torch.randn(8, 100)
    data = TensorDataset(torch.randn(10000, 8) @ basis)
    ae = AutoEncoder().cuda()
    sampler = DistributedSampler(data, num_replicas=world, rank=dist.get_rank())
    optimizer = torch.optim.AdamW(ae.parameters(), lr=1e-3)
    for epoch in range(15):
        sampler.set_epoch(epoch)
        for (x,) in DataLoader(data, batch_size=100, sampler=sampler):
            x = x.cuda()
            loss = nn.functional.mse_loss(ae(x), x)
            optimizer.zero_grad()
            loss.backward()
            with torch.no_grad():
                for p in ae.parameters():
                    dist.all_reduce(p.grad)
                    p.grad[...] = p.grad / world
            optimizer.step()
        if dist.get_rank() == 0:
            print(epoch, loss.item())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
