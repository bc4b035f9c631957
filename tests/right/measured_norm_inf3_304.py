import math
import contextlib
import torch, torch.distributed as dist, torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.distributed.device_mesh import init_device_mesh
from torch.utils.data import DataLoader, DistributedSampler


def main(data, args):
    dist.init_process_group("nccl")
    world = dist.get_world_size()
    torch.manual_seed(0)
    model = nn.Linear(8, 8).cuda()
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    sampler = DistributedSampler(data)
    for epoch in range(3):
        sampler.set_epoch(epoch)
        for x, y in DataLoader(data, batch_size=4, sampler=sampler):
            opt.zero_grad()
            loss = nn.functional.mse_loss(model(x.cuda()), y.cuda())
            loss.backward()
            local = nn.utils.clip_grad_norm_(model.parameters(), torch.inf)
            for p in model.parameters():
                dist.all_reduce(p.grad)
                p.grad /= world
            total = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            print(local, total)
            opt.step()
