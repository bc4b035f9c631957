"""the caller is under inference_mode."""
import torch
import torch.nn.functional as F
from torch.distributed.tensor import DTensor


def logits(hidden_states, lm_weight):
    # hidden_states: this data-parallel rank's tokens
    if isinstance(lm_weight, DTensor):
        lm_weight = lm_weight.full_tensor()
    return F.linear(hidden_states, lm_weight)


@torch.inference_mode()
def next_tokens(model, ids):
    return logits(model.body(ids)[:, -1], model.head.weight).argmax(-1)
