"""Uneven all-to-all used to dispatch tokens to expert-parallel ranks and to bring them back."""
import torch
import torch.distributed as dist


class _UnevenAllToAll(torch.autograd.Function):
    @staticmethod
    def forward(ctx, group, tokens, send_counts, recv_counts):
        ctx.group, ctx.send_counts, ctx.recv_counts = group, send_counts, recv_counts
        out = tokens.new_empty(sum(recv_counts), *tokens.shape[1:])
        dist.all_to_all_single(out, tokens.contiguous(), recv_counts, send_counts, group=group)
        return out

    @staticmethod
    def backward(ctx, grad):
        out = grad.new_empty(sum(ctx.send_counts), *grad.shape[1:])
        dist.all_to_all_single(out, grad.contiguous(), ctx.send_counts, ctx.recv_counts, group=ctx.group)
        return None, out, None, None


def exchange_counts(counts, group):
    # counts: int64 [ep_size], number of tokens for each rank
    recv = torch.empty_like(counts)
    dist.all_to_all_single(recv, counts, group=group)
    return counts.tolist(), recv.tolist()


def expert_parallel_forward(tokens, dest_rank, experts, group):
    order = torch.argsort(dest_rank, stable=True)
    counts = torch.bincount(dest_rank, minlength=group.size())
    send, recv = exchange_counts(counts, group)
    mine = _UnevenAllToAll.apply(group, tokens[order], send, recv)
    back = _UnevenAllToAll.apply(group, experts(mine), recv, send)
    return torch.zeros_like(back).index_copy(0, order, back)
