"""Cross entropy over logits cut along the vocabulary.

Source: sharded cross entropy as in nanotron and Megatron (from memory). The largest logit that is
subtracted for stability must be the one over all shards. With the maximum of each shard the
exponentials that are added over the ranks, and the target logit, have different offsets.
"""
import torch
import torch.distributed as dist


class _ShardedCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, sharded_logits, target, group):
        # sharded_logits: [..., vocab / tp], target: [...] with global ids
        logits_max = torch.max(sharded_logits, dim=-1)[0]
        dist.all_reduce(logits_max, op=dist.ReduceOp.MAX, group=group)
        logits = sharded_logits - logits_max.unsqueeze(-1)

        size = logits.shape[-1]
        start = dist.get_rank(group) * size
        outside = (target < start) | (target >= start + size)
        local_target = (target - start).masked_fill(outside, 0)
        predicted = logits.gather(-1, local_target.unsqueeze(-1)).squeeze(-1)
        predicted = predicted.masked_fill(outside, 0.0)
        dist.all_reduce(predicted, group=group)

        exp = logits.exp()
        sum_exp = exp.sum(dim=-1)
        dist.all_reduce(sum_exp, group=group)
        loss = sum_exp.log() - predicted

        ctx.save_for_backward(exp / sum_exp.unsqueeze(-1), outside, local_target)
        return loss

    @staticmethod
    def backward(ctx, grad_output):
        softmax, outside, local_target = ctx.saved_tensors
        grad = softmax.clone()
        hit = (~outside).to(grad.dtype).unsqueeze(-1)
        grad.scatter_add_(-1, local_target.unsqueeze(-1), -hit)
        return grad * grad_output.unsqueeze(-1), None, None


def sharded_cross_entropy(sharded_logits, target, group):
    return _ShardedCrossEntropy.apply(sharded_logits.float(), target, group)


def masked_mean_loss(sharded_logits, target, mask, tp_group):
    loss = sharded_cross_entropy(sharded_logits, target, tp_group)
    return (loss * mask).sum() / mask.sum()
