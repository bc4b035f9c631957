"""A mask that is made where none is given is gathered over the ranks of a sequence like one that was given."""

import torch
import torch.distributed as dist
from torch.distributed.nn.functional import all_gather


def gather_sequence(tensor, group):
    if group is None or dist.get_world_size(group) == 1:
        return tensor
    return torch.cat(all_gather(tensor.contiguous(), group=group), dim=1)


class Attention(torch.nn.Module):
    def __init__(self, hidden, group):
        super().__init__()
        self.kv = torch.nn.Linear(hidden, hidden)
        self.group = group

    def forward(self, hidden_states, attention_mask=None):
        batch, sequence, _ = hidden_states.shape
        valid = torch.ones(batch, sequence, dtype=torch.bool, device=hidden_states.device)
        if attention_mask is not None:
            valid = attention_mask.bool()
        valid = gather_sequence(valid, self.group)
        kv = gather_sequence(self.kv(hidden_states), self.group)
        return kv * valid.unsqueeze(-1)
