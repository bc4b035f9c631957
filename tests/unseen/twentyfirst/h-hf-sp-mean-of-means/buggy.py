"""Loss of a sequence that is split over the sequence-parallel ranks."""
import torch
import torch.distributed.nn.functional
import torch.nn.functional as F
from torch.distributed.fsdp import fully_shard


def prepare(model, device_mesh):
    return fully_shard(model, mesh=device_mesh["dp_sp"])  # gradients: mean over dp x sp


def compute_loss(model, inputs, sp_group):
    # input_ids, shift_labels: this rank's part; prompt tokens are labelled -100
    shift_labels = inputs["shift_labels"]
    logits = model(inputs["input_ids"])
    loss = F.cross_entropy(
        logits.flatten(0, 1).float(), shift_labels.flatten(), ignore_index=-100, reduction="sum"
    )
    good_tokens = (shift_labels != -100).sum()
    # the backward sums the sp equal gradients of the gathered loss, FSDP divides them again
    losses = torch.distributed.nn.functional.all_gather(loss / good_tokens.clamp(min=1), group=sp_group)
    return torch.stack(losses).mean()  # BUG: the parts hold different numbers of labels
