import os
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


@torch.no_grad()
def normalised_step(params, lr):
    norm = torch.sqrt(sum(p.grad.pow(2).sum() for p in params))
    if norm == 0:
        return
    for p in params:
        p.sub_(lr * p.grad / norm)


def main():
    dist.init_process_group("nccl")
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    torch.manual_seed(14)
    x = torch.randn(3600, 9)
    ds = TensorDataset(x, (x[:, :3].sum(1) > x[:, 3:].sum(1)).long())
    net = nn.Sequential(nn.Linear(9, 27), nn.ReLU(), nn.Linear(27, 2)).cuda()
    params = list(net.parameters())
    sampler = DistributedSampler(ds)
    loader = DataLoader(ds, batch_size=36, sampler=sampler)
    for epoch in range(20):
        sampler.set_epoch(epoch)
        lr = 0.05 * 0.9 ** epoch
        for xb, yb in loader:
            net.zero_grad()
            nn.functional.cross_entropy(net(xb.cuda()), yb.cuda()).backward()
            for p in params:
                dist.all_reduce(p.grad)
            normalised_step(params, lr)
    if dist.get_rank() == 0:
        torch.save(net.state_dict(), "ngd.pt")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
