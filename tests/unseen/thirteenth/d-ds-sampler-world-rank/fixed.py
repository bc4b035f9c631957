"""Data loader of an engine that may be given a model-parallel unit.

Source: microsoft/DeepSpeed issue #99, PR #216.
"""
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler


class DeepSpeedDataLoader:
    def __init__(self, dataset, batch_size, mpu, collate_fn=None, num_workers=2):
        # ranks of one model-parallel group work on the same samples
        self.mpu = mpu
        data_sampler = DistributedSampler(
            dataset=dataset,
            num_replicas=mpu.get_data_parallel_world_size(),
            rank=mpu.get_data_parallel_rank(),
        )
        self.data_sampler = data_sampler
        self.dataloader = DataLoader(
            dataset,
            batch_size=batch_size,
            pin_memory=True,
            sampler=data_sampler,
            collate_fn=collate_fn,
            num_workers=num_workers,
        )

    def __len__(self):
        return len(self.dataloader)

    def __iter__(self):
        return iter(self.dataloader)


def train(tensor_parallel_model, dataset, mpu, optimizer, batch_size, epochs):
    model = DDP(tensor_parallel_model, process_group=mpu.get_data_parallel_group())
    loader = DeepSpeedDataLoader(dataset, batch_size, mpu)
    for epoch in range(epochs):
        loader.data_sampler.set_epoch(epoch)
        for batch in loader:
            loss = model(**batch)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
