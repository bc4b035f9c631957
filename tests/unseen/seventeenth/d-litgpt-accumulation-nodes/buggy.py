# Source: Lightning-AI/litgpt commit 3eb93c8d (PR #1947), litgpt/args.py and pretrain.py
# The number of accumulation steps is derived from the devices of one node. With several nodes the
# global batch is num_nodes times global_batch_size.
# Repair: divide by devices * num_nodes.
from dataclasses import dataclass

import lightning as L
import torch
from torch.utils.data import DataLoader

from litgpt.utils import chunked_cross_entropy


@dataclass
class TrainArgs:
    """Training-related arguments"""

    global_batch_size: int = 64
    """Number of samples between optimizer steps across data-parallel ranks"""
    micro_batch_size: int = 4
    """Number of samples per data-parallel rank"""
    max_norm: float = 1.0

    def gradient_accumulation_iters(self, devices: int) -> int:
        """Number of iterations between gradient synchronizations"""
        gradient_accumulation_iters = self.batch_size(devices) // self.micro_batch_size
        assert gradient_accumulation_iters > 0
        return gradient_accumulation_iters

    def batch_size(self, devices: int) -> int:
        """Number of samples between optimizer steps per data-parallel rank"""
        batch_size = self.global_batch_size // devices  # BUG
        assert batch_size > 0
        return batch_size


def fit(fabric: L.Fabric, devices: int, num_nodes: int, model, optimizer, train_dataloader: DataLoader, train: TrainArgs):
    # fabric was launched with devices per node and num_nodes
    accumulation_iters = train.gradient_accumulation_iters(devices)
    for iter_num, train_data in enumerate(train_dataloader, start=1):
        input_ids = train_data[:, 0 : model.max_seq_length].contiguous().long()
        targets = train_data[:, 1 : (model.max_seq_length + 1)].contiguous().long()

        is_accumulating = iter_num % accumulation_iters != 0
        with fabric.no_backward_sync(model, enabled=is_accumulating):
            loss = chunked_cross_entropy(model(input_ids), targets)
            fabric.backward(loss / accumulation_iters)

        if not is_accumulating:
            fabric.clip_gradients(model, optimizer, max_norm=train.max_norm)
            optimizer.step()
            optimizer.zero_grad()


def main(devices: int, num_nodes: int, model, optimizer, train_dataloader, train: TrainArgs):
    fabric = L.Fabric(devices=devices, num_nodes=num_nodes, strategy="fsdp", precision="bf16-true")
    fabric.launch()
    torch.set_float32_matmul_precision("high")
    model, optimizer = fabric.setup(model, optimizer)
    fit(fabric, devices, num_nodes, model, optimizer, fabric.setup_dataloaders(train_dataloader), train)
