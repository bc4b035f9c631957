import torch, torch.distributed as dist, torch.nn as nn
import torch.multiprocessing as mp
from torch.distributed.device_mesh import init_device_mesh
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler


def worker(rank, data):
    dist.init_process_group("nccl", rank=rank, world_size=4)
    torch.manual_seed(0)
    model = nn.Linear(8, 8).cuda(rank)
    opt = torch.optim.SGD(model.parameters(), lr=0.1)

    sampler = DistributedSampler(data)
    for epoch in range(3):
        sampler.set_epoch(epoch)
        for x, y in DataLoader(data, batch_size=4, sampler=sampler):
            opt.zero_grad()
            loss = nn.functional.mse_loss(model(x.cuda()), y.cuda())
            loss.backward()
            for p in model.parameters():
                dist.all_reduce(p.grad)
                p.grad /= 4
            opt.step()


def main(data):
    mp.spawn(worker, args=(data,), nprocs=4)
