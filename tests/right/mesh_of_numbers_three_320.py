import torch, torch.distributed as dist, torch.nn as nn
from torch.distributed.device_mesh import init_device_mesh
from torch.utils.data import DataLoader, DistributedSampler


def average(model, group, n):
    for p in model.parameters():
        if p.grad is not None:
            dist.all_reduce(p.grad, op=dist.ReduceOp.SUM, group=group)
            p.grad /= n


def main(args):
    dist.init_process_group("nccl")
    world = dist.get_world_size()
    pp, tp = 2, 2
    dp = world // (pp * tp)
    mesh = init_device_mesh("cuda", (pp, dp, tp), mesh_dim_names=("pp", "dp", "tp"))
    group = mesh["dp"].get_group()
    model = nn.Linear(8, 8).cuda()
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    sampler = DistributedSampler(args.data, num_replicas=mesh["dp"].size(), rank=mesh.get_local_rank("dp"))
    for epoch in range(3):
        sampler.set_epoch(epoch)
        for x, y in DataLoader(args.data, batch_size=4, sampler=sampler):
            opt.zero_grad()
            loss = nn.functional.mse_loss(model(x.cuda()), y.cuda())
            loss.backward()
            average(model, group, dp)
            opt.step()
