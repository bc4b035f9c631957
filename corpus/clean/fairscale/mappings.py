"""Mappings that overwrite their argument and say so, with all helpers, and a vocabulary-parallel loss above them."""

from typing import Any, Tuple

import torch
import torch.distributed as dist
from fairscale.nn.model_parallel.initialize import get_model_parallel_group, get_model_parallel_rank
from fairscale.nn.model_parallel.utils import split_tensor_along_last_dim


def _reduce(ctx: Any, input_: torch.Tensor) -> torch.Tensor:
    group = get_model_parallel_group()
    if ctx:
        ctx.mark_dirty(input_)
    if dist.get_world_size(group=group) == 1:
        return input_
    dist.all_reduce(input_, group=group)
    return input_


def _split(input_: torch.Tensor) -> torch.Tensor:
    group = get_model_parallel_group()
    if dist.get_world_size(group=group) == 1:
        return input_
    input_list = split_tensor_along_last_dim(input_, dist.get_world_size(group=group))
    return input_list[dist.get_rank(group=group)].contiguous()


def _gather(input_: torch.Tensor) -> torch.Tensor:
    group = get_model_parallel_group()
    if dist.get_world_size(group=group) == 1:
        return input_
    rank = dist.get_rank(group=group)
    tensor_list = [torch.empty_like(input_) for _ in range(dist.get_world_size(group=group))]
    tensor_list[rank] = input_
    dist.all_gather(tensor_list, input_, group=group)
    return torch.cat(tensor_list, dim=input_.dim() - 1).contiguous()


class _CopyToModelParallelRegion(torch.autograd.Function):
    @staticmethod
    def forward(ctx, input_):
        return input_

    @staticmethod
    def backward(ctx, grad_output):
        return _reduce(None, grad_output)


class _ReduceFromModelParallelRegion(torch.autograd.Function):
    @staticmethod
    def forward(ctx, input_):
        return _reduce(ctx, input_)

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output


class _ScatterToModelParallelRegion(torch.autograd.Function):
    @staticmethod
    def forward(ctx, input_):
        return _split(input_)

    @staticmethod
    def backward(ctx, grad_output):
        return _gather(grad_output)


class _GatherFromModelParallelRegion(torch.autograd.Function):
    @staticmethod
    def forward(ctx, input_):
        return _gather(input_)

    @staticmethod
    def backward(ctx, grad_output):
        return _split(grad_output)


class _VocabParallelCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, vocab_parallel_logits: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        group = get_model_parallel_group()
        logits = vocab_parallel_logits.clone()
        logits_max = torch.max(logits, dim=-1)[0]
        dist.all_reduce(logits_max, op=dist.ReduceOp.MAX, group=group)
        logits.sub_(logits_max.unsqueeze(dim=-1))
        exp_logits = logits.exp()
        sum_exp_logits = exp_logits.sum(dim=-1)
        dist.all_reduce(sum_exp_logits, group=group)

        per_rank = logits.size(-1)
        start = get_model_parallel_rank() * per_rank
        target_mask = (target < start) | (target >= start + per_rank)
        masked_target = target.clone() - start
        masked_target[target_mask] = 0
        logits_2d = logits.view(-1, per_rank)
        masked_target_1d = masked_target.view(-1)
        rows = torch.arange(start=0, end=logits_2d.size(0), device=logits_2d.device)
        predicted = logits_2d[rows, masked_target_1d].view_as(target)
        predicted[target_mask] = 0.0
        dist.all_reduce(predicted, group=group)

        loss = torch.log(sum_exp_logits) - predicted
        exp_logits.div_(sum_exp_logits.unsqueeze(dim=-1))
        ctx.save_for_backward(exp_logits, target_mask, masked_target_1d)
        return loss

    @staticmethod
    def backward(ctx: Any, grad_output: torch.Tensor) -> Tuple[torch.Tensor, None]:
        softmax, target_mask, masked_target_1d = ctx.saved_tensors
        grad_input = softmax
        grad_2d = grad_input.view(-1, softmax.size()[-1])
        rows = torch.arange(start=0, end=grad_2d.size()[0], device=grad_2d.device)
        grad_2d[rows, masked_target_1d] -= 1.0 - target_mask.view(-1).float()
        grad_input.mul_(grad_output.unsqueeze(dim=-1))
        return grad_input, None


class Head(torch.nn.Module):
    def __init__(self, dim: int, vocab_per_rank: int):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.empty(vocab_per_rank, dim))

    def forward(self, x: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        x = _CopyToModelParallelRegion.apply(x)
        logits = torch.nn.functional.linear(x, self.weight)
        return _VocabParallelCrossEntropy.apply(logits.float(), target).mean()
