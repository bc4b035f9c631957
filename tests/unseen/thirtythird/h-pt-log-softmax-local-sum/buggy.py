"""Log-softmax over vocabulary shards, for preference losses that weight log-probabilities freely.

Source: https://github.com/pytorch/pytorch/issues/190746 (pull request 191479)
Wrong: d log_softmax is g - softmax * sum(g) with the sum over the whole vocabulary; backward sums
over this rank's shard only.
Repair: all-reduce that sum over the tensor-parallel group.
"""
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh


class VocabParallelLogSoftmax(torch.autograd.Function):
    @staticmethod
    def forward(ctx, logits: torch.Tensor, group: dist.ProcessGroup):
        x_max = torch.amax(logits, dim=-1, keepdim=True)
        dist.all_reduce(x_max, op=dist.ReduceOp.MAX, group=group)
        shifted = logits - x_max
        denominator = shifted.exp().sum(dim=-1, keepdim=True)
        dist.all_reduce(denominator, group=group)
        result = shifted - denominator.log()
        ctx.save_for_backward(result)
        ctx.group = group
        return result

    @staticmethod
    def backward(ctx, grad_output):
        (result,) = ctx.saved_tensors
        total = grad_output.sum(dim=-1, keepdim=True)  # BUG: the class dimension is split over ranks
        return grad_output - result.exp() * total, None


class _SumOverShards(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        x = x.clone()
        dist.all_reduce(x, group=group)
        return x

    @staticmethod
    def backward(ctx, grad):
        return grad, None


def weighted_log_prob_loss(logits_shard, weights_shard, mesh: DeviceMesh):
    group = mesh.get_group("tp")
    log_probs = VocabParallelLogSoftmax.apply(logits_shard.float(), group)
    return -_SumOverShards.apply((log_probs * weights_shard).sum(), group)
