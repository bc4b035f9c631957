import os
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def main():
    dist.init_process_group("nccl")
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    ds = TensorDataset(torch.randn(3000, 30), torch.randint(0, 3, (3000,)))
    model = nn.Sequential(nn.Linear(30, 90), nn.ReLU(), nn.Linear(90, 3)).cuda()
    opt = torch.optim.AdamW(model.parameters(), lr=1e-3)
    sampler = DistributedSampler(ds)
    loader = DataLoader(ds, batch_size=30, sampler=sampler)
    for epoch in range(4):
        sampler.set_epoch(epoch)
        for it, (x, y) in enumerate(loader):
            opt.zero_grad()
            nn.functional.cross_entropy(model(x.cuda()), y.cuda()).backward()
            local_norm = torch.nn.utils.clip_grad_norm_(model.parameters(), float("inf"))
            for p in model.parameters():
                dist.all_reduce(p.grad)
                p.grad /= world
            opt.step()
            if it % 20 == 0:
                print(f"rank {rank} epoch {epoch} it {it} local grad norm {local_norm.item():.3f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
