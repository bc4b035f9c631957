# What it does: a branch for decoding behind is_grad_enabled: gathered, cut and split.
# Why it is right: gradients are off in the branch.
import torch
from megatron.core.tensor_parallel import gather_from_sequence_parallel_region, scatter_to_sequence_parallel_region


def draft(model, hidden):
    if torch.is_grad_enabled():
        return model(hidden)
    hidden = gather_from_sequence_parallel_region(hidden)
    hidden = hidden[-8:]
    hidden = scatter_to_sequence_parallel_region(hidden)
    return model(hidden)
