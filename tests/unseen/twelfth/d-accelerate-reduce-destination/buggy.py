"""Reduction of (nested) tensors across processes, and its use in an evaluation loop."""
import torch
from accelerate.state import AcceleratorState, DistributedType
from accelerate.utils import recursively_apply
from torch.distributed import ReduceOp


def reduce(tensor, reduction="sum"):
    """
    Reduce the values in *tensor* across all processes. All processes get the reduced value.

    Args:
        tensor (nested list/tuple/dictionary of `torch.Tensor`): The data to reduce.
        reduction (`str`, *optional*, defaults to "sum"): "sum" or "mean".

    Returns:
        The same data structure as `data` with all the tensors reduced.
    """

    def _reduce_across_processes(tensor, reduction="sum"):
        state = AcceleratorState()
        cloned_tensor = tensor.clone()
        if state.distributed_type in [DistributedType.DEEPSPEED, DistributedType.MULTI_GPU]:
            torch.distributed.reduce(cloned_tensor, dst=0, op=ReduceOp.SUM)  # BUG: only rank 0 gets the sum, every process uses the result
        if reduction == "mean":
            cloned_tensor = cloned_tensor / state.num_processes
        return cloned_tensor

    return recursively_apply(_reduce_across_processes, tensor, error_on_other_type=True, reduction=reduction)


def evaluate(model, eval_dataloader, lr_scheduler, accelerator):
    model.eval()
    loss_sum = torch.zeros(1, device=accelerator.device)
    num_samples = torch.zeros(1, device=accelerator.device)
    with torch.no_grad():
        for batch in eval_dataloader:
            loss_sum += model(**batch).loss * batch["input_ids"].shape[0]
            num_samples += batch["input_ids"].shape[0]
    loss_sum, num_samples = reduce((loss_sum, num_samples))
    eval_loss = (loss_sum / num_samples).item()
    lr_scheduler.step(eval_loss)  # ReduceLROnPlateau
    return eval_loss
