# DeepSpeed PR #5664 / #5823 (same bug as MindSpeed !226): the all-to-all that brings heads back together
# moves the rank dimension in front of the batch instead of in front of the heads; wrong for batch > 1.
from typing import Any, Tuple

import torch
from torch import Tensor
from torch.nn import Module

import deepspeed.comm as dist


def single_all_to_all(input, scatter_idx, gather_idx, group):
    """input: [seq, batch, heads, head_dim]; scatters one of seq (0) and heads (2) and gathers the other."""
    seq_world_size = dist.get_world_size(group)
    inp_shape = list(input.shape)
    inp_shape[scatter_idx] = inp_shape[scatter_idx] // seq_world_size
    if scatter_idx < 2:
        input_t = input.reshape(
            [seq_world_size, inp_shape[scatter_idx]] + \
            inp_shape[scatter_idx + 1:]
        ).contiguous()
    else:
        # transpose groups of heads with the seq-len parallel dimension, so that we can scatter them!
        input_t = input.reshape(
            [-1, seq_world_size, inp_shape[scatter_idx]] + \
            inp_shape[scatter_idx + 1:]
        ).transpose(0, 1).contiguous()

    output = torch.empty_like(input_t)
    dist.all_to_all_single(output, input_t, group=group)

    # if scattering the seq-dim, transpose the heads back to the original dimension
    if scatter_idx < 2:
        output = output.transpose(0, 1).contiguous()  # BUG

    return output.reshape(
        inp_shape[: gather_idx] + \
        [inp_shape[gather_idx] * seq_world_size,] + \
        inp_shape[gather_idx + 1:]).contiguous()


class _SeqAllToAll(torch.autograd.Function):

    @staticmethod
    def forward(ctx: Any, group: dist.ProcessGroup, input: Tensor, scatter_idx: int, gather_idx: int) -> Tensor:
        ctx.group = group
        ctx.scatter_idx = scatter_idx
        ctx.gather_idx = gather_idx
        return single_all_to_all(input, scatter_idx, gather_idx, group)

    @staticmethod
    def backward(ctx: Any, *grad_output: Tensor) -> Tuple[None, Tensor, None, None]:
        return (None, _SeqAllToAll.apply(ctx.group, *grad_output, ctx.gather_idx, ctx.scatter_idx), None, None)


class DistributedAttention(Module):

    def __init__(self, local_attention: Module, sequence_process_group: dist.ProcessGroup):
        super().__init__()
        self.local_attn = local_attention
        self.spg = sequence_process_group

    def forward(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        # [s/p, b, n, h] -> [s, b, n/p, h]
        q, k, v = (_SeqAllToAll.apply(self.spg, t, 2, 0) for t in (query, key, value))
        context = self.local_attn(q, k, v)
        return _SeqAllToAll.apply(self.spg, context, 0, 2)
