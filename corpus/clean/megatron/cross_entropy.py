"""Vocab-parallel cross entropy: three all-reduces inside one autograd function, the gradient written by hand."""

import torch
from megatron.core.parallel_state import (
    get_tensor_model_parallel_group,
    get_tensor_model_parallel_rank,
)


class VocabParallelCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, logits, target):
        group = get_tensor_model_parallel_group()
        largest = torch.max(logits, dim=-1)[0]
        torch.distributed.all_reduce(largest, op=torch.distributed.ReduceOp.MAX, group=group)
        logits = logits - largest.unsqueeze(dim=-1)
        per_rank = logits.size(-1)
        first = get_tensor_model_parallel_rank() * per_rank
        outside = (target < first) | (target >= first + per_rank)
        local = target.clone() - first
        local[outside] = 0
        flat = logits.view(-1, per_rank)
        rows = torch.arange(0, flat.size(0), device=flat.device)
        predicted = flat[rows, local.view(-1)].clone().view_as(target)
        predicted[outside] = 0.0
        torch.distributed.all_reduce(predicted, op=torch.distributed.ReduceOp.SUM, group=group)
        exp = torch.exp(logits)
        total = exp.sum(dim=-1)
        torch.distributed.all_reduce(total, op=torch.distributed.ReduceOp.SUM, group=group)
        loss = torch.log(total) - predicted
        exp.div_(total.unsqueeze(dim=-1))
        ctx.save_for_backward(exp, outside, local.view(-1))
        return loss

    @staticmethod
    def backward(ctx, grad):
        softmax, outside, local = ctx.saved_tensors
        flat = softmax.view(-1, softmax.size(-1))
        rows = torch.arange(0, flat.size(0), device=flat.device)
        flat[rows, local] -= 1.0 - outside.view(-1).float()
        return softmax.mul_(grad.unsqueeze(dim=-1)), None
