# Reduces user-written DDP communication hooks: a hook replaces the averaging of DistributedDataParallel too, and this
# one returns the sum over the ranks.
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def bf16_compress_hook(process_group, bucket):
    group = process_group if process_group is not None else dist.group.WORLD
    buffer = bucket.buffer()
    compressed = buffer.to(torch.bfloat16).div_(group.size())
    future = dist.all_reduce(compressed, group=group, async_op=True).get_future()

    def decompress(fut):
        buffer.copy_(fut.value()[0])
        return buffer

    return future.then(decompress)


class Runner:
    def __init__(self, model, cfg, device):
        self.model = DistributedDataParallel(model.to(device), device_ids=[device.index], bucket_cap_mb=50)
        if cfg.grad_compression == "bf16":
            self.model.register_comm_hook(state=None, hook=bf16_compress_hook)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=cfg.lr, momentum=0.9)
        self.device = device

    def run_iter(self, images, labels):
        loss = torch.nn.functional.cross_entropy(self.model(images.to(self.device)), labels.to(self.device))
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.detach()
