"""Gather metric inputs from all processes and compute the metric on all of them."""
from typing import Any, List, Optional, Union

import torch


def gather_all_tensors_if_available(result: torch.Tensor, group: Optional[Any] = None) -> Union[torch.Tensor, List]:
    """
    Function to gather all tensors from several ddp processes onto a list that
    is broadcasted to all processes

    Args:
        result: the value to sync
        group: the process group to gather results from. Defaults to all processes (world)

    Return:
        gathered_result: list with size equal to the process group where
            gathered_result[i] corresponds to result tensor from process i
    """
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        if group is None:
            group = torch.distributed.group.WORLD

        world_size = torch.distributed.get_world_size(group)

        gathered_result = world_size * [torch.zeros_like(result)]  # BUG: all entries are one and the same tensor

        # sync and broadcast all
        torch.distributed.barrier(group=group)
        torch.distributed.all_gather(gathered_result, result, group)

        result = gathered_result
    return result


class AUROC:
    def __init__(self, metric_fn, group=None):
        self.metric_fn, self.group = metric_fn, group

    def __call__(self, pred: torch.Tensor, target: torch.Tensor):
        preds = gather_all_tensors_if_available(pred, self.group)
        targets = gather_all_tensors_if_available(target, self.group)
        if isinstance(preds, list):
            preds, targets = torch.cat(preds), torch.cat(targets)
        return self.metric_fn(preds, targets)
