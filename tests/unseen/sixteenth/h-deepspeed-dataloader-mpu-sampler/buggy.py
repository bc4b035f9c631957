# deepspeedai/DeepSpeed issue 99, pull request 216 (commit 0f72988d)
# The loader builds DistributedSampler without replica count and rank, so model-parallel ranks that must work on the
# same samples are given different ones.
"""Data loader of an engine that may run with a model-parallel unit (mpu)."""
import torch.distributed as dist
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler


class DeepSpeedDataLoader:
    def __init__(self, dataset, batch_size, collate_fn=None, data_sampler=None,
                 data_parallel_world_size=None, data_parallel_rank=None):
        self.batch_size = batch_size
        if data_sampler is None:
            data_sampler = DistributedSampler(dataset)  # BUG
        self.data_sampler = data_sampler
        self.dataloader = DataLoader(
            dataset,
            batch_size=batch_size,
            sampler=data_sampler,
            collate_fn=collate_fn,
            pin_memory=True,
        )

    def __iter__(self):
        return iter(self.dataloader)


class DeepSpeedLight:
    def __init__(self, model, optimizer, mpu=None):
        self.module, self.optimizer, self.mpu = model, optimizer, mpu

    def deepspeed_io(self, dataset, batch_size, collate_fn=None):
        data_parallel_world_size = None
        data_parallel_rank = None
        if self.mpu is not None:
            data_parallel_world_size = self.mpu.get_data_parallel_world_size()
            data_parallel_rank = self.mpu.get_data_parallel_rank()
        return DeepSpeedDataLoader(
            dataset,
            batch_size,
            collate_fn=collate_fn,
            data_parallel_world_size=data_parallel_world_size,
            data_parallel_rank=data_parallel_rank,
        )

    def allreduce_gradients(self):
        group = self.mpu.get_data_parallel_group() if self.mpu is not None else dist.group.WORLD
        for param in self.module.parameters():
            if param.grad is not None:
                param.grad.div_(dist.get_world_size(group))
                dist.all_reduce(param.grad, group=group)

    def train_epoch(self, loader: DeepSpeedDataLoader, epoch):
        loader.data_sampler.set_epoch(epoch)
        for batch in loader:
            self.optimizer.zero_grad()
            loss = self.module(*(t.cuda() for t in batch))
            loss.backward()
            self.allreduce_gradients()
            self.optimizer.step()
