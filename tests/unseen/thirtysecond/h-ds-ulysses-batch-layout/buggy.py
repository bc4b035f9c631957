"""Ulysses attention: all-to-all between sequence and heads, layout [s, b, h, d].
microsoft/DeepSpeed #5823, sequence parallel with batch size larger than 1.
"""
import torch
import deepspeed.comm as dist


def single_all_to_all(input, scatter_idx, gather_idx, group):
    seq_world_size = dist.get_world_size(group)
    inp_shape = list(input.shape)
    inp_shape[scatter_idx] = inp_shape[scatter_idx] // seq_world_size
    if scatter_idx < 2:
        input_t = input.reshape([seq_world_size, inp_shape[scatter_idx]] + inp_shape[scatter_idx + 1:]).contiguous()
    else:
        input_t = (
            input.reshape([-1, seq_world_size, inp_shape[scatter_idx]] + inp_shape[scatter_idx + 1:])
            .transpose(0, 1)
            .contiguous()
        )
    output = torch.empty_like(input_t)
    dist.all_to_all_single(output, input_t, group=group)

    if scatter_idx < 2:
        output = output.transpose(0, 2).contiguous()  # BUG
    return output.reshape(
        inp_shape[:gather_idx] + [inp_shape[gather_idx] * seq_world_size] + inp_shape[gather_idx + 1:]
    ).contiguous()


class _SeqAllToAll(torch.autograd.Function):
    @staticmethod
    def forward(ctx, group, input, scatter_idx, gather_idx):
        ctx.group, ctx.scatter_idx, ctx.gather_idx = group, scatter_idx, gather_idx
        return single_all_to_all(input, scatter_idx, gather_idx, group)

    @staticmethod
    def backward(ctx, grad_output):
        return None, _SeqAllToAll.apply(ctx.group, grad_output, ctx.gather_idx, ctx.scatter_idx), None, None


class DistributedAttention(torch.nn.Module):
    def __init__(self, local_attention, sequence_process_group, scatter_idx=2, gather_idx=0):
        super().__init__()
        self.local_attn, self.spg = local_attention, sequence_process_group
        self.scatter_idx, self.gather_idx = scatter_idx, gather_idx

    def forward(self, query, key, value):
        q, k, v = (_SeqAllToAll.apply(self.spg, t, self.scatter_idx, self.gather_idx) for t in (query, key, value))
        context = self.local_attn(q, k, v)
        return _SeqAllToAll.apply(self.spg, context, self.gather_idx, self.scatter_idx)
