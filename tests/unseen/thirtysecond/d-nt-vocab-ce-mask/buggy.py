"""Cross entropy over vocabulary-sharded logits.
huggingface/nanotron, tensor_parallel/functional.py, from memory.
"""
import torch
import torch.distributed as dist


class _ShardedCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, sharded_logits, target, group):
        logits_max = torch.max(sharded_logits, dim=-1)[0]
        dist.all_reduce(logits_max, op=dist.ReduceOp.MAX, group=group)
        sharded_logits = sharded_logits - logits_max.unsqueeze(dim=-1)

        vocab_size_per_rank = sharded_logits.shape[-1]
        start_index = dist.get_rank(group) * vocab_size_per_rank
        end_index = start_index + vocab_size_per_rank
        target_mask = (target < start_index) | (target >= end_index)
        masked_target = target.clone() - start_index
        masked_target[target_mask] = 0

        logits_2d = sharded_logits.view(-1, vocab_size_per_rank)
        masked_target_1d = masked_target.view(-1)
        arange_1d = torch.arange(start=0, end=logits_2d.shape[0], device=logits_2d.device)
        predicted_logits = logits_2d[arange_1d, masked_target_1d].view_as(target)
        predicted_logits[target_mask] = 0.0
        dist.all_reduce(predicted_logits, op=dist.ReduceOp.SUM, group=group)

        exp_logits = torch.exp(sharded_logits)
        sum_exp_logits = exp_logits.sum(dim=-1)
        dist.all_reduce(sum_exp_logits, op=dist.ReduceOp.SUM, group=group)
        loss = torch.log(sum_exp_logits) - predicted_logits

        exp_logits.div_(sum_exp_logits.unsqueeze(dim=-1))
        ctx.save_for_backward(exp_logits, target_mask, masked_target_1d)
        return loss

    @staticmethod
    def backward(ctx, grad_output):
        softmax, target_mask, masked_target_1d = ctx.saved_tensors
        grad_input = softmax
        grad_2d = grad_input.view(-1, grad_input.shape[-1])
        arange_1d = torch.arange(start=0, end=grad_2d.shape[0], device=grad_2d.device)
        grad_2d[arange_1d, masked_target_1d] -= 1.0  # BUG
        grad_input.mul_(grad_output.unsqueeze(dim=-1))
        return grad_input, None, None


def sharded_cross_entropy(sharded_logits, target, group):
    return _ShardedCrossEntropy.apply(sharded_logits, target, group)
