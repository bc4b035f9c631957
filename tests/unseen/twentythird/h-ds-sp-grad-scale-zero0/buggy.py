"""Gradient all-reduce of the engine with Ulysses sequence parallelism and no ZeRO."""
import torch
import torch.distributed as dist


class SequenceMeanLoss(torch.autograd.Function):
    """Mean over the whole sequence; each rank gets the gradient of its own tokens."""

    @staticmethod
    def forward(ctx, token_loss, sp_group):
        ctx.shape = token_loss.shape
        ctx.n = token_loss.numel() * dist.get_world_size(sp_group)
        total = token_loss.sum()
        dist.all_reduce(total, group=sp_group)
        return total / ctx.n

    @staticmethod
    def backward(ctx, g):
        return (g / ctx.n).expand(ctx.shape), None


class DeepSpeedEngine:
    def __init__(self, module, seq_data_parallel_group, sequence_parallel_group):
        self.module = module
        self.seq_data_parallel_group = seq_data_parallel_group
        self.sequence_parallel_group = sequence_parallel_group
        self.sequence_parallel_size = dist.get_world_size(sequence_parallel_group)

    def backward(self, token_loss):
        SequenceMeanLoss.apply(token_loss, self.sequence_parallel_group).backward()
        self.allreduce_gradients()

    def allreduce_gradients(self):
        world = dist.get_world_size(self.seq_data_parallel_group)
        for p in self.module.parameters():
            p.grad.div_(world)  # BUG: also divides by the sequence-parallel size
            dist.all_reduce(p.grad, group=self.seq_data_parallel_group)
