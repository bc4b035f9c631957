"""the gradient of the local copy of the weight is averaged over the ranks by a hook on the full tensor."""
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.distributed.tensor import DTensor


def logits(hidden_states, lm_weight):
    # hidden_states: this data-parallel rank's tokens
    if isinstance(lm_weight, DTensor):
        lm_weight = lm_weight.full_tensor()
        lm_weight.register_hook(average)
    return F.linear(hidden_states, lm_weight)


def average(grad):
    grad = grad.clone()
    dist.all_reduce(grad, op=dist.ReduceOp.AVG)
    return grad
