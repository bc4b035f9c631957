import argparse
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.optim.lr_scheduler import LambdaLR
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def get_args():
    ap = argparse.ArgumentParser()
    ap.add_argument("--lr", type=float, default=0.3)
    ap.add_argument("--warmup", type=int, default=100)
    ap.add_argument("--epochs", type=int, default=8)
    return ap.parse_args()


def main(args):
    dist.init_process_group("gloo")
    world = dist.get_world_size()
    gen = torch.Generator().manual_seed(1)
    x = torch.randn(8000, 14, generator=gen)
    ds = TensorDataset(x, x.argmax(1))
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(14, 56), nn.ReLU(), nn.Linear(56, 14))
    opt = torch.optim.SGD(model.parameters(), lr=args.lr)
    sched = LambdaLR(opt, lambda it: min(1.0, (it + 1) / args.warmup) / world)
    sampler = DistributedSampler(ds)
    loader = DataLoader(ds, batch_size=80, sampler=sampler)
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        for xb, yb in loader:
            opt.zero_grad()
            nn.functional.cross_entropy(model(xb), yb).backward()
            for p in model.parameters():
                dist.all_reduce(p.grad, op=dist.ReduceOp.SUM)
            opt.step()
            sched.step()
    if dist.get_rank() == 0:
        torch.save(model.state_dict(), "argmax.pt")
    dist.destroy_process_group()


if __name__ == "__main__":
    main(get_args())
