import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler


def get_data_parallel_group():
    return dist.new_group(list(range(dist.get_world_size())))


def compute_loss(model, x, y):
    return torch.nn.functional.cross_entropy(model(x), y)


def main(data, net, rank):
    model = DDP(net.cuda(rank), process_group=get_data_parallel_group())
    optimizer = torch.optim.AdamW(model.parameters())
    sampler = DistributedSampler(data)
    for x, y in DataLoader(data, batch_size=8, sampler=sampler):
        optimizer.zero_grad()
        compute_loss(model, x.cuda(rank), y.cuda(rank)).backward()
        optimizer.step()
