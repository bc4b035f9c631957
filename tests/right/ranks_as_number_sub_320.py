import torch, torch.distributed as dist, torch.nn as nn
import torch.multiprocessing as mp
from torch.distributed.device_mesh import init_device_mesh
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler


def main(data):
    dist.init_process_group("nccl")
    rank = dist.get_rank()
    ranks = [[0, 1, 2, 3], [4, 5, 6, 7]]
    for r in ranks:
        g = dist.new_group(r)
        if rank in r:
            group, members = g, r
    torch.manual_seed(0)
    model = nn.Linear(8, 8).cuda()
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    sampler = DistributedSampler(data, num_replicas=len(members), rank=members.index(rank))
    for epoch in range(3):
        sampler.set_epoch(epoch)
        for x, y in DataLoader(data, batch_size=4, sampler=sampler):
            opt.zero_grad()
            loss = nn.functional.mse_loss(model(x.cuda()), y.cuda())
            loss.backward()
            for p in model.parameters():
                dist.all_reduce(p.grad, group=group)
                p.grad /= len(members)
            opt.step()
