import os
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


def sync_grads(model, world):
    for p in model.parameters():
        if p.grad is None:
            continue
        dist.all_reduce(p.grad, op=dist.ReduceOp.SUM)
        torch.div(p.grad, world, out=p.grad)


def main():
    dist.init_process_group("nccl")
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    world = dist.get_world_size()
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(30, 60), nn.ReLU(), nn.Linear(60, 4)).cuda()
    ds = TensorDataset(torch.randn(2000, 30), torch.randint(0, 4, (2000,)))
    sampler = DistributedSampler(ds)
    loader = DataLoader(ds, batch_size=20, sampler=sampler)
    opt = torch.optim.Adam(model.parameters())
    for epoch in range(10):
        sampler.set_epoch(epoch)
        for x, y in loader:
            opt.zero_grad()
            nn.functional.cross_entropy(model(x.cuda()), y.cuda()).backward()
            sync_grads(model, world)
            opt.step()
    if dist.get_rank() == 0:
        torch.save(model.state_dict(), "a.pt")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
