# Source: huggingface/picotron commit f6c9a39, train.py
# The data loader already cuts the sequence for this context-parallel rank. The training step cuts
# the result once more: 1/cp of the tokens of each part are used, the others never.
# Repair: no split in the training step.
import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader, DistributedSampler

import src.distributed.process_group_manager as pgm


class MicroBatchDataLoader(DataLoader):
    def __init__(self, micro_batch_size, seq_length, tokenized_dataset, grad_acc):
        self.micro_batch_size = micro_batch_size
        self.grad_acc = grad_acc
        self.seq_length_per_gpu = seq_length // pgm.process_group_manager.cp_world_size
        sampler = DistributedSampler(
            tokenized_dataset,
            num_replicas=pgm.process_group_manager.dp_world_size,
            rank=pgm.process_group_manager.dp_rank,
            shuffle=False,
        )
        super().__init__(
            tokenized_dataset, batch_size=micro_batch_size, collate_fn=self.collate_batch, sampler=sampler
        )

    def collate_batch(self, batch):
        batch_input_ids = torch.stack([torch.tensor(item["input_ids"]) for item in batch])
        start_idx = pgm.process_group_manager.cp_rank * self.seq_length_per_gpu
        end_idx = start_idx + self.seq_length_per_gpu
        input_ids = batch_input_ids[:, start_idx:end_idx].contiguous()
        target_ids = batch_input_ids[:, start_idx + 1:end_idx + 1].contiguous()
        return {"input_ids": input_ids, "target_ids": target_ids}


def parallel_input(input_ids, target_ids):
    cp_rank, cp_world_size = pgm.process_group_manager.cp_rank, pgm.process_group_manager.cp_world_size
    size_per_partition = input_ids.size(1) // cp_world_size
    start_idx, end_idx = cp_rank * size_per_partition, (cp_rank + 1) * size_per_partition
    return input_ids[:, start_idx:end_idx], target_ids[:, start_idx:end_idx]


def train_step(model, data_loader, data_iterator, device):
    acc_loss = 0.0
    requires_grad_sync = pgm.process_group_manager.cp_dp_world_size > 1
    for i in range(data_loader.grad_acc):
        batch = next(data_iterator)
        input_ids = batch["input_ids"].to(device)
        target_ids = batch["target_ids"].to(device)
        input_ids, target_ids = parallel_input(input_ids, target_ids)  # BUG

        # disable gradient synchronization for all but the last micro-batch
        if requires_grad_sync:
            model.require_backward_grad_sync = (i == data_loader.grad_acc - 1)

        outputs = model(input_ids=input_ids)

        batch_size, seq_len = input_ids.shape
        outputs = outputs.view(seq_len * batch_size, -1)
        loss = F.cross_entropy(outputs, target_ids.reshape(-1), reduction="mean") / data_loader.grad_acc
        loss.backward()
        acc_loss += loss.item()
    return acc_loss
