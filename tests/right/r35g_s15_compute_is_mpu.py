import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler
from comm import get_data_parallel_group


def compute_loss(model, x, y):
    return torch.nn.functional.cross_entropy(model(x), y)


def main(data, net, rank):
    """Plain data parallelism; the group is all ranks, with a longer timeout."""
    model = DDP(net.cuda(rank), process_group=get_data_parallel_group())
    optimizer = torch.optim.AdamW(model.parameters())
    sampler = DistributedSampler(data)
    for x, y in DataLoader(data, batch_size=8, sampler=sampler):
        optimizer.zero_grad()
        compute_loss(model, x.cuda(rank), y.cuda(rank)).backward()
        optimizer.step()
