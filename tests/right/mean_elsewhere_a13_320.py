import os
from dataclasses import dataclass, field

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


@dataclass
class DistEnv:
    backend: str = "nccl"
    rank: int = field(init=False)
    world: int = field(init=False)
    grad_scale: float = field(init=False)
    device: torch.device = field(init=False)

    def __post_init__(self):
        self.rank = int(os.environ["RANK"])
        self.world = int(os.environ["WORLD_SIZE"])
        self.grad_scale = 1.0 / self.world
        self.device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
        torch.cuda.set_device(self.device)
        dist.init_process_group(self.backend)


def optimise(env, model, loader, sampler, epochs=4):
    opt = torch.optim.Adagrad(model.parameters(), lr=0.05)
    for epoch in range(epochs):
        sampler.set_epoch(epoch)
        for ids, rating in loader:
            opt.zero_grad()
            pred = model(ids.to(env.device)).squeeze(-1)
            nn.functional.mse_loss(pred, rating.to(env.device)).backward()
            for p in model.parameters():
                dist.all_reduce(p.grad, op=dist.ReduceOp.SUM)
                p.grad *= env.grad_scale
            opt.step()


def main():
    env = DistEnv()
    torch.manual_seed(1)
    ds = TensorDataset(torch.randint(0, 500, (20000, 2)), torch.rand(20000) * 5)
    model = nn.Sequential(nn.Embedding(500, 16), nn.Flatten(), nn.Linear(32, 16), nn.ReLU(), nn.Linear(16, 1)).to(env.device)
    sampler = DistributedSampler(ds, num_replicas=env.world, rank=env.rank)
    optimise(env, model, DataLoader(ds, batch_size=200, sampler=sampler), sampler)
    if env.rank == 0:
        torch.save(model.state_dict(), "ratings.pt")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
