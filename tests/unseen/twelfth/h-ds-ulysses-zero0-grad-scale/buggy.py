"""Gradient reduction without ZeRO, with Ulysses sequence parallelism."""
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch._utils import _flatten_dense_tensors, _unflatten_dense_tensors


class _GatherSequence(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        ctx.rank, ctx.n = dist.get_rank(group), x.size(0)
        parts = [torch.empty_like(x) for _ in range(dist.get_world_size(group))]
        dist.all_gather(parts, x.contiguous(), group=group)
        return torch.cat(parts)

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output[ctx.rank * ctx.n:(ctx.rank + 1) * ctx.n], None


def sequence_parallel_loss(logits, labels, sp_group):
    # logits: [s/sp, vocab], labels: [s/sp]
    loss = F.cross_entropy(logits, labels, reduction="none")
    return _GatherSequence.apply(loss, sp_group).mean()


class Engine:
    def __init__(self, module, seq_data_parallel_group, sequence_parallel_size, micro_batch_size):
        self.module = module
        self.seq_dp_group = seq_data_parallel_group  # data-parallel x sequence-parallel ranks
        self.seq_dp_world_size = dist.get_world_size(seq_data_parallel_group)
        self.dp_world_size = self.seq_dp_world_size // sequence_parallel_size
        self.train_batch_size = micro_batch_size * self.dp_world_size

    def allreduce_gradients(self):
        grads = [p.grad for p in self.module.parameters() if p.grad is not None]
        flat = _flatten_dense_tensors(grads)
        flat.div_(self.seq_dp_world_size)  # BUG: the sequence shards' gradients are parts of one sum
        dist.all_reduce(flat, group=self.seq_dp_group)
        for g, synced in zip(grads, _unflatten_dense_tensors(flat, grads)):
            g.copy_(synced)
