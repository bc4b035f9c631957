"""A communication hook that reduces buckets in half precision; the wrapper waits for the future it returns."""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler


def fp16_hook(state, bucket):
    group = state if state is not None else dist.group.WORLD
    tensor = bucket.buffer().to(torch.float16).div_(group.size())
    future = dist.all_reduce(tensor, group=group, async_op=True).get_future()

    def decompress(fut):
        out = bucket.buffer()
        out.copy_(fut.value()[0])
        return out

    return future.then(decompress)


def train(net, dataset, rank):
    model = DDP(net.cuda(rank), device_ids=[rank])
    model.register_comm_hook(state=None, hook=fp16_hook)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for x, y in DataLoader(dataset, sampler=DistributedSampler(dataset), batch_size=8):
        optimizer.zero_grad()
        F.cross_entropy(model(x.cuda(rank)), y.cuda(rank)).backward()
        optimizer.step()
