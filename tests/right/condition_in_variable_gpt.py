# What it does: flash-attention's GPTLMHeadModel.forward: logits are gathered without gradient for decoding.
# Why it is right: public code; with the condition inside of the `if` it is silent, and naming the condition changes nothing.
import torch
import torch.distributed as dist
import torch.nn as nn


def all_gather_raw(x, process_group):
    out = torch.empty(process_group.size() * x.shape[0], *x.shape[1:], dtype=x.dtype, device=x.device)
    dist.all_gather_into_tensor(out, x.contiguous(), group=process_group)
    return out, None


class ColumnParallelLinear(nn.Linear):
    pass


class GPTLMHeadModel(nn.Module):
    def __init__(self, transformer, lm_head, process_group):
        super().__init__()
        self.transformer, self.lm_head, self.process_group = transformer, lm_head, process_group

    def forward(self, ids, inference_params=None):
        hidden = self.transformer(ids)
        lm_logits = self.lm_head(hidden)
        gather = isinstance(self.lm_head, ColumnParallelLinear) and inference_params is not None
        if gather:
            lm_logits, _ = all_gather_raw(lm_logits, self.process_group)
        return lm_logits
