import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torchvision.models import resnet50


def main_worker(local_rank, nprocs, args, loader):
    dist.init_process_group("nccl", world_size=nprocs, rank=local_rank)
    model = DDP(resnet50().cuda(local_rank), device_ids=[local_rank])
    optimizer = torch.optim.SGD(model.parameters(), args.lr)
    for images, target in loader:
        loss = F.cross_entropy(model(images), target, reduction="sum", ignore_index=255)
        count = (target != 255).sum()
        dist.all_reduce(count)
        loss = loss * nprocs / count
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
