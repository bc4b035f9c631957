"""Channel-parallel convolution: colwise splits output channels, rowwise splits input channels."""
# fangwei123456/spikingjelly PR 704 (review): colwise mode has no all-reduce of the input's gradient.
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F


class _RowwiseForwardAllReduce(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        out = x.clone()
        dist.all_reduce(out, op=dist.ReduceOp.SUM, group=group)
        return out

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output, None


class _ColwiseBackwardAllReduce(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        ctx.group = group
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad_output):
        grad_input = grad_output.clone()
        dist.all_reduce(grad_input, op=dist.ReduceOp.SUM, group=ctx.group)
        return grad_input, None


class TensorParallelConv2d(nn.Module):
    def __init__(self, conv: nn.Conv2d, mode: str, group):
        super().__init__()
        assert mode in ("colwise", "rowwise")
        self.mode = mode
        self.group = group
        self.world_size = dist.get_world_size(group)
        self.rank = dist.get_rank(group)
        self.stride, self.padding, self.dilation = conv.stride, conv.padding, conv.dilation
        dim = 0 if mode == "colwise" else 1
        self.weight = nn.Parameter(conv.weight.detach().chunk(self.world_size, dim=dim)[self.rank].clone())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.mode == "colwise":
            x = _ColwiseBackwardAllReduce.apply(x, self.group)
            return F.conv2d(x, self.weight, None, self.stride, self.padding, self.dilation)
        out = F.conv2d(x, self.weight, None, self.stride, self.padding, self.dilation)
        return _RowwiseForwardAllReduce.apply(out, self.group)


class ChannelParallelBlock(nn.Module):
    def __init__(self, conv1, conv2, group):
        super().__init__()
        self.conv1 = TensorParallelConv2d(conv1, "colwise", group)
        self.conv2 = TensorParallelConv2d(conv2, "rowwise", group)

    def forward(self, x):
        return x + self.conv2(torch.relu(self.conv1(x)))
