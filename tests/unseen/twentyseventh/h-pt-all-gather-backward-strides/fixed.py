"""Differentiable all-gather and reduce-scatter."""
import torch
import torch.distributed as dist


class _ReduceScatter(torch.autograd.Function):
    @staticmethod
    def forward(ctx, op, group, tensor, *input_tensor_list):
        ctx.group = group
        tensor = tensor.contiguous()
        input_tensor_list = [t.contiguous() for t in input_tensor_list]
        dist.reduce_scatter(tensor, input_tensor_list, op=op, group=group)
        return tensor

    @staticmethod
    def backward(ctx, grad_output):
        return (None, None, None) + _AllGather.apply(ctx.group, grad_output)


class _AllGather(torch.autograd.Function):
    @staticmethod
    def forward(ctx, group, tensor):
        ctx.group = group
        tensor = tensor.contiguous()
        out = [torch.empty_like(tensor) for _ in range(dist.get_world_size(group=group))]
        dist.all_gather(out, tensor, group=group)
        return tuple(out)

    @staticmethod
    def backward(ctx, *grad_outputs):
        rank = dist.get_rank(group=ctx.group)
        gx = torch.empty_like(grad_outputs[rank])
        gx = _ReduceScatter.apply(dist.ReduceOp.SUM, ctx.group, gx, *grad_outputs)
        return None, gx


def similarity(image_features, text_features, group=dist.group.WORLD):
    all_text = torch.cat(_AllGather.apply(group, text_features))
    return image_features @ all_text.t()
