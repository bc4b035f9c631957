"""The framework's communication functions written again, over helpers with a dim, with a scale of the gradient, used by an embedding."""

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F


def _reduce(input_, process_group):
    if dist.get_world_size(process_group) == 1:
        return input_
    dist.all_reduce(input_, group=process_group)
    return input_


def _split(input_, dim=-1, process_group=None):
    world_size = dist.get_world_size(process_group)
    if world_size == 1:
        return input_
    dim_size = input_.size(dim)
    assert dim_size % world_size == 0, f"dim {dim} of size {dim_size} does not divide by {world_size}"
    tensor_list = torch.split(input_, dim_size // world_size, dim=dim)
    rank = dist.get_rank(process_group)
    return tensor_list[rank].clone().contiguous()


def _gather(input_, dim=-1, process_group=None):
    world_size = dist.get_world_size(process_group)
    if world_size == 1:
        return input_
    input_ = input_.contiguous()
    tensor_list = [torch.empty_like(input_) for _ in range(world_size)]
    dist.all_gather(tensor_list, input_, group=process_group)
    return torch.cat(tensor_list, dim=dim).contiguous()


class _ReduceForward(torch.autograd.Function):
    @staticmethod
    def forward(ctx, input_, process_group, grad_scale=None):
        ctx.grad_scale = grad_scale
        return _reduce(input_, process_group)

    @staticmethod
    def backward(ctx, grad_output):
        if ctx.grad_scale is not None:
            grad_output = grad_output * ctx.grad_scale
        return grad_output, None, None


class _ReduceBackward(torch.autograd.Function):
    @staticmethod
    def forward(ctx, input_, process_group):
        ctx.process_group = process_group
        return input_

    @staticmethod
    def backward(ctx, grad_output):
        return _reduce(grad_output, ctx.process_group), None


class _GatherForwardSplitBackward(torch.autograd.Function):
    @staticmethod
    def forward(ctx, input_, dim, process_group, grad_scale=None):
        ctx.process_group, ctx.dim, ctx.grad_scale = process_group, dim, grad_scale
        return _gather(input_, dim, process_group)

    @staticmethod
    def backward(ctx, grad_output):
        if ctx.grad_scale == "up":
            grad_output = grad_output * dist.get_world_size(ctx.process_group)
        elif ctx.grad_scale == "down":
            grad_output = grad_output / dist.get_world_size(ctx.process_group)
        return _split(grad_output, ctx.dim, ctx.process_group), None, None, None


class _SplitForwardGatherBackward(torch.autograd.Function):
    @staticmethod
    def forward(ctx, input_, dim, process_group, grad_scale=None):
        ctx.process_group, ctx.dim, ctx.grad_scale = process_group, dim, grad_scale
        return _split(input_, dim, process_group)

    @staticmethod
    def backward(ctx, grad_output):
        if ctx.grad_scale == "up":
            grad_output = grad_output * dist.get_world_size(ctx.process_group)
        elif ctx.grad_scale == "down":
            grad_output = grad_output / dist.get_world_size(ctx.process_group)
        return _gather(grad_output, ctx.dim, ctx.process_group), None, None, None


class VocabParallelEmbedding1D(nn.Module):
    def __init__(self, num_embeddings, embedding_dim, process_group, padding_idx=None):
        super().__init__()
        self.process_group = process_group
        size, rank = dist.get_world_size(process_group), dist.get_rank(process_group)
        per_partition = num_embeddings // size
        self.vocab_start_index = rank * per_partition
        self.vocab_end_index = self.vocab_start_index + per_partition
        self.padding_idx = padding_idx
        self.weight = nn.Parameter(torch.empty(per_partition, embedding_dim))
        if padding_idx is not None and self.vocab_start_index <= padding_idx < self.vocab_end_index:
            with torch.no_grad():
                self.weight[padding_idx - self.vocab_start_index].fill_(0)

    def forward(self, input_):
        input_mask = (input_ < self.vocab_start_index) | (input_ >= self.vocab_end_index)
        masked_input = input_.clone() - self.vocab_start_index
        masked_input[input_mask] = 0
        output_parallel = F.embedding(masked_input, self.weight)
        embedding_output = output_parallel.clone()
        embedding_output[input_mask, :] = 0.0
        return _ReduceForward.apply(embedding_output, self.process_group)


class LMHead(nn.Module):
    def __init__(self, embedding_dim, num_embeddings, process_group, gather_output=True):
        super().__init__()
        self.process_group, self.gather_output = process_group, gather_output
        self.weight = nn.Parameter(torch.empty(num_embeddings // dist.get_world_size(process_group), embedding_dim))

    def forward(self, x):
        logits = F.linear(_ReduceBackward.apply(x, self.process_group), self.weight)
        if self.gather_output:
            return _GatherForwardSplitBackward.apply(logits, -1, self.process_group)
        return logits
