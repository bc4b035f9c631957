"""Logits are gathered and every rank of tp takes the same whole loss; the backward of the gather takes its columns."""
import torch
import torch.distributed as dist
import torch.nn.functional as F
from megatron.core import parallel_state
from megatron.core.tensor_parallel import (
    copy_to_tensor_model_parallel_region,
    gather_from_tensor_model_parallel_region,
)


class Head(torch.nn.Module):
    def __init__(self, hidden, vocab):
        super().__init__()
        n = parallel_state.get_tensor_model_parallel_world_size()
        self.weight = torch.nn.Parameter(torch.empty(vocab // n, hidden))
        self.weight.tensor_model_parallel = True

    def forward(self, x):
        x = copy_to_tensor_model_parallel_region(x)
        return gather_from_tensor_model_parallel_region(F.linear(x, self.weight))


def distillation_loss(logits, teacher, labels, mask, alpha=0.5, t=2.0):
    soft = F.kl_div(
        F.log_softmax(logits / t, -1), F.log_softmax(teacher / t, -1), reduction="none", log_target=True
    ).sum(-1) * t * t
    hard = F.cross_entropy(logits.flatten(0, 1), labels.flatten(), reduction="none").view_as(soft)
    loss = alpha * soft + (1 - alpha) * hard
    return (loss * mask).sum() / mask.sum()


def forward_step(batch, trunk, head, teacher):
    with torch.no_grad():
        target = teacher(batch["tokens"])
    logits = head(trunk(batch["tokens"])).transpose(0, 1)
    loss = distillation_loss(logits, target, batch["labels"], batch["mask"])
    shown = loss.detach().clone()
    dist.all_reduce(shown, group=parallel_state.get_data_parallel_group())
    return loss, shown / parallel_state.get_data_parallel_world_size()
