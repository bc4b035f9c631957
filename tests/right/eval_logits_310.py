"""the head is only evaluated: the function is called under no_grad by the scorer."""
import torch
import torch.nn.functional as F
from torch.distributed.tensor import DTensor


def logits(hidden_states, lm_weight):
    # hidden_states: this data-parallel rank's tokens
    if isinstance(lm_weight, DTensor):
        lm_weight = lm_weight.full_tensor()
    return F.linear(hidden_states, lm_weight)


@torch.no_grad()
def score(model, batches):
    total = 0.0
    for ids in batches:
        out = logits(model.body(ids), model.head.weight)
        total += F.cross_entropy(out[:, :-1].flatten(0, 1), ids[:, 1:].flatten()).item()
    return total
