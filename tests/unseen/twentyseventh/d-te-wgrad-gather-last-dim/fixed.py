"""Column-parallel linear with sequence parallelism; the input is kept transposed for wgrad."""
import torch
import torch.distributed as dist


def gather_along_first_dim(x, group):
    out = torch.empty(x.size(0) * group.size(), *x.shape[1:], dtype=x.dtype, device=x.device)
    dist.all_gather_into_tensor(out, x.contiguous(), group=group)
    return out


def gather_along_last_dim(x, group):
    x = x.contiguous()
    parts = [torch.empty_like(x) for _ in range(group.size())]
    dist.all_gather(parts, x, group=group)
    return torch.cat(parts, dim=-1)


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx, inp, weight, group):
        # inp: [s/tp * b, in], weight: [out/tp, in]
        ctx.save_for_backward(inp.t().contiguous(), weight)
        ctx.group = group
        return gather_along_first_dim(inp, group) @ weight.t()

    @staticmethod
    def backward(ctx, grad_output):
        inp_t, weight = ctx.saved_tensors
        inp_t_total = gather_along_last_dim(inp_t, ctx.group)
        dgrad = grad_output @ weight
        grad_inp = dgrad.new_empty(dgrad.size(0) // ctx.group.size(), dgrad.size(1))
        handle = dist.reduce_scatter_tensor(grad_inp, dgrad, group=ctx.group, async_op=True)
        wgrad = grad_output.t() @ inp_t_total.t()
        handle.wait()
        return grad_inp, wgrad, None
