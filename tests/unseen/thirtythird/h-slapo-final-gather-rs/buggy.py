"""Schedule primitives for sequence parallelism: gather after the final layer norm.

Source: https://github.com/awslabs/slapo/pull/20
Wrong: after the final gather every rank runs the same (unsharded) head on the whole sequence, so
each rank's gradient is complete; the reduce-scatter in backward adds tp copies of it.
Repair: tensor_parallel_output_grad=False, i.e. only split the gradient.
"""
import torch
import torch.distributed as dist


def _gather(x, dim, group):
    parts = [torch.empty_like(x) for _ in range(dist.get_world_size(group))]
    dist.all_gather(parts, x.contiguous(), group=group)
    return torch.cat(parts, dim=dim)


def _reduce_scatter(x, dim, group):
    parts = [t.contiguous() for t in x.chunk(dist.get_world_size(group), dim=dim)]
    out = torch.empty_like(parts[0])
    dist.reduce_scatter(out, parts, group=group)
    return out


class _AllGatherForwardOutput(torch.autograd.Function):
    @staticmethod
    def forward(ctx, inp, dim, group, tensor_parallel_output_grad):
        ctx.args = dim, group, tensor_parallel_output_grad
        return _gather(inp, dim, group)

    @staticmethod
    def backward(ctx, grad):
        dim, group, tensor_parallel_output_grad = ctx.args
        if tensor_parallel_output_grad:
            return _reduce_scatter(grad, dim, group), None, None, None
        chunks = grad.chunk(dist.get_world_size(group), dim=dim)
        return chunks[dist.get_rank(group)].contiguous(), None, None, None


def all_gather_after(module, dim, group, tensor_parallel_output_grad=True):
    module.register_forward_hook(
        lambda mod, inp, out: _AllGatherForwardOutput.apply(out, dim, group, tensor_parallel_output_grad)
    )


def schedule_sequence_parallel(model, group):
    for layer in model.transformer.h:
        all_gather_after(layer.ln_1, 1, group)  # in front of the sharded qkv
        all_gather_after(layer.ln_2, 1, group)  # in front of the sharded fc1
    # lm_head is replicated; loss and labels are the same on all ranks of the group
    all_gather_after(model.transformer.ln_f, 1, group)  # BUG: the gradient is complete on each rank
