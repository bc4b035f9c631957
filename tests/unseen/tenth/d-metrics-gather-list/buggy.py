"""Gather metric states from every process.

Lightning-AI/torchmetrics 1a6b585a8d57, pytorch_lightning/metrics/converters.py
"""
from typing import Any, List, Optional, Union

import torch


def gather_all_tensors_if_available(
    result: Union[torch.Tensor], group: Optional[Any] = None
) -> List[torch.Tensor]:
    """
    Function to gather all tensors from several ddp processes onto a list that
    is broadcasted to all processes

    Return:
        gathered_result: list with size equal to the process group where
            gathered_result[i] corresponds to result tensor from process i
    """
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        if group is None:
            group = torch.distributed.group.WORLD

        world_size = torch.distributed.get_world_size(group)

        gathered_result = world_size * [torch.zeros_like(result)]  # BUG

        # sync and broadcast all
        torch.distributed.barrier(group=group)
        torch.distributed.all_gather(gathered_result, result, group)

        result = gathered_result

    return result


class Metric(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("correct", torch.tensor(0.0))
        self.register_buffer("total", torch.tensor(0.0))

    def compute(self):
        correct = torch.stack(gather_all_tensors_if_available(self.correct)).sum()
        total = torch.stack(gather_all_tensors_if_available(self.total)).sum()
        return correct / total
