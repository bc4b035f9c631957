import os
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

dist.init_process_group("nccl")
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
world = dist.get_world_size()

torch.manual_seed(41)
backbone = nn.Sequential(nn.Linear(32, 64), nn.ReLU()).cuda()
head = nn.Linear(64, 4).cuda()
opt = torch.optim.SGD(
    [{"params": backbone.parameters(), "lr": 0.01}, {"params": head.parameters(), "lr": 0.1}]
)
for g in opt.param_groups:
    g["lr"] /= world

ds = TensorDataset(torch.randn(3200, 32), torch.randint(0, 4, (3200,)))
sampler = DistributedSampler(ds, num_replicas=world, rank=dist.get_rank())
loader = DataLoader(ds, batch_size=32, sampler=sampler)
for epoch in range(6):
    sampler.set_epoch(epoch)
    for x, y in loader:
        opt.zero_grad()
        loss = nn.functional.cross_entropy(head(backbone(x.cuda())), y.cuda())
        loss.backward()
        for g in opt.param_groups:
            for p in g["params"]:
                dist.all_reduce(p.grad)
        opt.step()
    if dist.get_rank() == 0:
        print(epoch, loss.item())
dist.destroy_process_group()
