"""A data-parallel training loop over several epochs.

Source: huggingface/transformers, issue #4398. DistributedSampler derives its permutation from its
seed and its epoch. The epoch is never set, so each epoch visits the samples in the same order and
each rank sees the same part of the data in all of them.
"""
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, RandomSampler


class Trainer:
    def __init__(self, model, args, train_dataset, collate_fn):
        self.model, self.args = model, args
        self.train_dataset, self.collate_fn = train_dataset, collate_fn

    def get_train_dataloader(self):
        if self.args.local_rank == -1:
            sampler = RandomSampler(self.train_dataset)
        else:
            sampler = DistributedSampler(self.train_dataset, shuffle=True, seed=self.args.seed)
        return DataLoader(
            self.train_dataset,
            batch_size=self.args.train_batch_size,
            sampler=sampler,
            collate_fn=self.collate_fn,
        )

    def train(self):
        train_dataloader = self.get_train_dataloader()
        model = self.model
        if self.args.local_rank != -1:
            model = DDP(model, device_ids=[self.args.local_rank])
        optimizer = torch.optim.AdamW(model.parameters(), lr=self.args.learning_rate)
        total = torch.zeros((), device=self.args.device)
        for epoch in range(int(self.args.num_train_epochs)):
            if isinstance(train_dataloader.sampler, DistributedSampler):
                train_dataloader.sampler.set_epoch(epoch)
            for inputs in train_dataloader:
                inputs = {k: v.to(self.args.device) for k, v in inputs.items()}
                loss = model(**inputs)[0]
                loss.backward()
                torch.nn.utils.clip_grad_norm_(model.parameters(), self.args.max_grad_norm)
                optimizer.step()
                model.zero_grad()
                total += loss.detach()
        if self.args.local_rank != -1:
            dist.all_reduce(total)
            total /= dist.get_world_size()
        return total.item()
