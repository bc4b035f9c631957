"""Fused q projection and all-to-all from the sequence to the head layout."""
import torch
import torch.distributed as dist


def exchange(x, group):
    out = torch.empty_like(x)
    dist.all_to_all_single(out, x, group=group)
    return out


class AsyncUlyssesQProjection(torch.autograd.Function):
    @staticmethod
    def forward(ctx, hidden, group, weight, bias):
        # hidden: [s/sp, in], result: [s, out/sp]
        ctx.save_for_backward(hidden, weight)
        ctx.group, world = group, dist.get_world_size(group)
        q = hidden @ weight.t() + bias
        q = q.view(q.size(0), world, -1).transpose(0, 1).contiguous()
        return exchange(q, group).flatten(0, 1)

    @staticmethod
    def backward(ctx, grad_output):
        hidden, weight = ctx.saved_tensors
        world = dist.get_world_size(ctx.group)
        grad_q = exchange(grad_output.contiguous().view(world, -1, grad_output.size(1)), ctx.group)
        grad_q = grad_q.transpose(0, 1).flatten(1)
        grad_hidden = grad_q @ weight if ctx.needs_input_grad[0] else None
        grad_weight = grad_q.t() @ hidden if ctx.needs_input_grad[2] else None
        grad_bias = grad_q.sum(dim=0) if ctx.needs_input_grad[3] else None
        return grad_hidden, None, grad_weight, grad_bias
