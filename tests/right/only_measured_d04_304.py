import os
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def noise_scale(small_sq, big_sq, b_small, b_big):
    g2 = (b_big * big_sq - b_small * small_sq) / (b_big - b_small)
    s = (small_sq - big_sq) / (1 / b_small - 1 / b_big)
    return s / g2


def main(batch=32):
    dist.init_process_group("nccl")
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    world = dist.get_world_size()
    assert world > 1
    torch.manual_seed(8)
    ds = TensorDataset(torch.randn(6400, 40), torch.randint(0, 10, (6400,)))
    net = nn.Sequential(nn.Linear(40, 80), nn.ReLU(), nn.Linear(80, 10)).cuda()
    opt = torch.optim.SGD(net.parameters(), lr=0.05)
    sampler = DistributedSampler(ds, drop_last=True)
    loader = DataLoader(ds, batch_size=batch, sampler=sampler, drop_last=True)
    for epoch in range(5):
        sampler.set_epoch(epoch)
        for x, y in loader:
            opt.zero_grad()
            nn.functional.cross_entropy(net(x.cuda()), y.cuda()).backward()
            small = nn.utils.clip_grad_norm_(net.parameters(), float("inf")) ** 2
            dist.all_reduce(small)
            small /= world
            for p in net.parameters():
                dist.all_reduce(p.grad)
                p.grad /= world
            big = nn.utils.clip_grad_norm_(net.parameters(), float("inf")) ** 2
            opt.step()
        if dist.get_rank() == 0:
            print(epoch, noise_scale(small.item(), big.item(), batch, batch * world))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
