import os
import math
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.utils import clip_grad_norm_
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

CLIP = 0.5


class Loop:
    def __init__(self, model, opt, log):
        self.model, self.opt, self.log = model, opt, log
        self.world = dist.get_world_size()

    def reduce(self):
        for p in self.model.parameters():
            dist.all_reduce(p.grad)
            p.grad.div_(self.world)

    def __call__(self, x, y):
        self.opt.zero_grad()
        loss = nn.functional.mse_loss(self.model(x), y)
        loss.backward()
        before = clip_grad_norm_(self.model.parameters(), math.inf)
        self.reduce()
        after = clip_grad_norm_(self.model.parameters(), CLIP)
        self.opt.step()
        self.log.write(f"{loss.item()},{before.item()},{after.item()}\n")


def main():
    dist.init_process_group("nccl")
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    torch.manual_seed(19)
    x = torch.randn(3800, 19)
    ds = TensorDataset(x, x.exp().mean(1, keepdim=True))
    model = nn.Sequential(nn.Linear(19, 38), nn.SiLU(), nn.Linear(38, 1)).cuda()
    sampler = DistributedSampler(ds)
    with open(f"norms.rank{dist.get_rank()}.csv", "w") as f:
        loop = Loop(model, torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9), f)
        for epoch in range(6):
            sampler.set_epoch(epoch)
            for xb, yb in DataLoader(ds, batch_size=38, sampler=sampler):
                loop(xb.cuda(), yb.cuda())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
