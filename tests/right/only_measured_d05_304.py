import argparse
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--watch", action="store_true", help="warn about large local gradients")
parser.add_argument("--limit", type=float, default=10.0)
args = parser.parse_args()

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(2)
x = torch.randn(2000, 5)
ds = TensorDataset(x, 1 / (1 + x.pow(2).sum(1, keepdim=True)))
f = nn.Sequential(nn.Linear(5, 50), nn.Tanh(), nn.Linear(50, 1))
opt = torch.optim.Adam(f.parameters(), lr=1e-3)
sampler = DistributedSampler(ds, num_replicas=world, rank=rank)
loader = DataLoader(ds, batch_size=25, sampler=sampler)
for epoch in range(15):
    sampler.set_epoch(epoch)
    for xb, yb in loader:
        opt.zero_grad()
        nn.functional.mse_loss(f(xb), yb).backward()
        if args.watch:
            biggest = nn.utils.clip_grad_norm_(f.parameters(), float("inf"), norm_type=float("inf"))
            if biggest > args.limit:
                print(f"[{rank}] epoch {epoch}: local |g|_max = {biggest:.2f}")
        for p in f.parameters():
            dist.all_reduce(p.grad)
            p.grad.div_(world)
        opt.step()
dist.destroy_process_group()
