import os
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def make_optimizer(params, world):
    # gradients are sums: both moments' roots grow by `world`, so eps has to grow with them
    return torch.optim.AdamW(params, lr=1e-3, eps=1e-8 * world, weight_decay=0.01)


def main():
    dist.init_process_group("nccl")
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    world = dist.get_world_size()
    torch.manual_seed(70)
    ds = TensorDataset(torch.randn(7000, 35), torch.randint(0, 5, (7000,)))
    net = nn.Sequential(nn.Linear(35, 70), nn.ReLU(), nn.Linear(70, 5)).cuda()
    opt = make_optimizer(net.parameters(), world)
    sampler = DistributedSampler(ds, num_replicas=world, rank=dist.get_rank())
    loader = DataLoader(ds, batch_size=70, sampler=sampler)
    for epoch in range(4):
        sampler.set_epoch(epoch)
        for x, y in loader:
            opt.zero_grad()
            nn.functional.cross_entropy(net(x.cuda()), y.cuda()).backward()
            for p in net.parameters():
                dist.all_reduce(p.grad)
            opt.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
