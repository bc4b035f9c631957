"""Ring self-attention over a sequence-parallel group (scores part)."""
# Source: hpcaitech/ColossalAI issue 3044 (confirmed from the thread)
import torch
import torch.distributed as dist

from colossalai.context.parallel_mode import ParallelMode
from colossalai.core import global_context as gpc
from colossalai.communication import ring_forward


def _range(rank, sub_seq_length):
    return rank * sub_seq_length, (rank + 1) * sub_seq_length


class RingQK(torch.autograd.Function):
    """Scores of the local queries against the keys of the whole sequence."""

    @staticmethod
    def forward(ctx, sub_q, sub_k, batch_size, num_heads, sub_seq_length):
        # sub_q, sub_k: [b * heads, s/sp, head_dim]
        ctx.save_for_backward(sub_q, sub_k)
        ctx.sub_seq_length = sub_seq_length
        rank = gpc.get_local_rank(ParallelMode.SEQUENCE)
        world = gpc.get_world_size(ParallelMode.SEQUENCE)
        scores = sub_q.new_empty(batch_size * num_heads, sub_seq_length, sub_seq_length * world)
        for step in range(world):
            start, end = _range((rank - step) % world, sub_seq_length)
            scores[:, :, start:end] = torch.matmul(sub_q, sub_k.transpose(2, 1))
            if step < world - 1:
                sub_k = ring_forward(sub_k, ParallelMode.SEQUENCE)
        return scores

    @staticmethod
    def backward(ctx, grad_output):
        sub_q, sub_k = ctx.saved_tensors
        rank = gpc.get_local_rank(ParallelMode.SEQUENCE)
        world = gpc.get_world_size(ParallelMode.SEQUENCE)

        grad_k = torch.matmul(grad_output.transpose(2, 1), sub_q)
        dist.all_reduce(grad_k, group=gpc.get_group(ParallelMode.SEQUENCE))
        start, end = _range(rank, ctx.sub_seq_length)
        grad_k = grad_k[:, start:end]
        grad_k = grad_k / world  # BUG

        grad_q = torch.zeros_like(sub_q)
        for step in range(world):
            start, end = _range((rank - step) % world, ctx.sub_seq_length)
            grad_q += torch.matmul(grad_output[:, :, start:end], sub_k)
            if step < world - 1:
                sub_k = ring_forward(sub_k, ParallelMode.SEQUENCE)
        return grad_q, grad_k, None, None, None
